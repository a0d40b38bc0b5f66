"""Exports an object in each way that it has, reads the export, and drops it."""

from __future__ import annotations

from ctypes import addressof, c_void_p
from dataclasses import dataclass
from typing import Any

from dlx_check import natives
from dlx_check.abi import (
    DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION,
    Deleter,
    DLTensor,
    is_capsule,
)
from dlx_check.core import dlx
from dlx_check.errors import message_of
from dlx_check.inspection.capsules import described, read_capsule, read_managed
from dlx_check.inspection.records import Capsule, ManagedTensor, Stream, Table, Tensor
from dlx_check.memory import can_be_called

__all__ = [
    "BORROWED",
    "EXPORTED",
    "Outcome",
    "ask_device",
    "borrowed",
    "current_work_stream",
    "exported_by_protocol",
    "exported_by_table",
    "raised",
    "short",
]

BORROWED = "dltensor_from_py_object_no_sync"
EXPORTED = "managed_tensor_from_py_object_no_sync"

_CPU = 1
_LONGEST = 120
_VERSION = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)


@dataclass(frozen=True)
class Outcome:
    """What one way out of an object gave: a tensor, or the reason why not."""

    way: str
    tensor: Tensor | None = None
    managed: ManagedTensor | None = None
    capsule: Capsule | None = None
    refusal: str | None = None
    unreadable: tuple[str, ...] = ()


def raised(error: BaseException) -> str:
    """Return that an exception was raised, with the first line of its message."""
    name = type(error).__name__
    if isinstance(error, AttributeError):
        # A consumer takes it for an attribute that is not there.
        return f"raises {name}"
    first = message_of(error).strip().partition("\n")[0]
    return f"raises {name}: {first[:_LONGEST]}".removesuffix(": ")


def ask_device(x: Any) -> tuple[tuple[int, int] | None, str | None]:
    """Return what ``__dlpack_device__`` gives, or what is to be said of it."""
    try:
        # One of torch asks `is_pinned`, which reads the storage.
        if x.is_quantized is True and x.is_neg() is True:
            return None, "not called: torch would end the process for such a view"
    except Exception:  # it is none of torch's
        pass
    try:
        answer = x.__dlpack_device__()
    except Exception as error:
        return None, raised(error)
    try:
        kind, index = answer
        return (int(kind), int(index)), None
    except Exception:
        return None, f"gives {short(answer)}"


def short(x: object) -> str:
    """Return the start of a repr that may fail."""
    try:
        return repr(x)[:_LONGEST]
    except Exception as error:
        return f"an object whose repr {raised(error)}"


_MISREAD = "not called: Paddle's table reads tensors as dense, which this is not"


def _is_misread(x: Any) -> bool:
    """Whether Paddle's table would take something else for the elements."""
    try:
        return x.is_dense() is False
    except Exception:  # it is none of Paddle's
        return False


def borrowed(x: Any, table: Table) -> Outcome | None:
    """Return the view that the table lends; None if it lends none."""
    if _is_misread(x):
        return Outcome(BORROWED, refusal=_MISREAD)
    out = DLTensor()
    answer = _call_table(table, BORROWED, id(x), addressof(out))
    if answer is None:
        return None
    if (refusal := answer.refusal()) is not None:
        return Outcome(BORROWED, refusal=refusal)
    return Outcome(BORROWED, described(out, BORROWED))


def exported_by_table(x: Any, table: Table) -> Outcome | None:
    """Export by the table, and delete the export; None if the table cannot."""
    if _is_misread(x):
        return Outcome(EXPORTED, refusal=_MISREAD)
    out = c_void_p()
    answer = _call_table(table, EXPORTED, id(x), addressof(out))
    if answer is None:
        return None
    if answer.code or out.value is None:
        nothing = "returns 0 and no tensor"
        return Outcome(EXPORTED, refusal=answer.refusal() or nothing)
    managed, tensor, unreadable = read_managed(
        out.value, versioned=True, source=EXPORTED
    )
    if managed is not None and can_be_called(managed.deleter.address):
        try:
            Deleter(managed.deleter.address)(out)
        except Exception as error:
            return Outcome(EXPORTED, refusal=f"has a deleter that {raised(error)}")
    if (refusal := answer.refusal()) is not None:
        return Outcome(EXPORTED, refusal=refusal)
    return Outcome(EXPORTED, tensor, managed, unreadable=unreadable)


@dataclass(frozen=True)
class _Answer:
    """What a function of a table returned, and the exception that it left."""

    code: int
    left: BaseException | None

    def refusal(self) -> str | None:
        """Return why it did not succeed; raise what interrupts a program."""
        if self.left is None:
            failed = f"returns {self.code} and sets no exception"
            return failed if self.code else None
        if not isinstance(self.left, Exception):
            raise self.left
        return raised(self.left)


def _call_table(table: Table, name: str, *arguments: int) -> _Answer | None:
    """Call a function of a table; None if it has none."""
    location = table.functions.get(name)
    if location is None or not can_be_called(location.address):
        return None
    # ctypes would not say what a function returned that left an exception.
    words = [argument % 2**64 for argument in (*arguments, 0, 0)[:4]]
    return _Answer(*natives.call(location.address, words))


def exported_by_protocol(x: Any, device: tuple[int, int] | None) -> Outcome:
    """Export by ``__dlpack__`` without waiting for a stream, and drop the capsule."""
    if (reason := _ends_the_process(x)) is not None:
        return Outcome("__dlpack__", refusal=reason)
    keywords: dict[str, Any] = {"max_version": _VERSION}
    if device is not None and device[0] != _CPU:
        keywords["stream"] = -1
    try:
        capsule = _call(x, keywords)
    except Exception as error:
        return Outcome("__dlpack__", refusal=raised(error))
    if not is_capsule(capsule):
        return Outcome("__dlpack__", refusal=f"gives {short(capsule)}")
    found = read_capsule(capsule, "__dlpack__")
    return Outcome(
        "__dlpack__",
        found.tensor,
        found.managed,
        found.capsule,
        None if found.managed else f"gives a capsule named {found.capsule.name}",
        found.unreadable,
    )


def _call(x: Any, keywords: dict[str, Any]) -> Any:
    try:
        return x.__dlpack__(**keywords)
    except TypeError:
        # A producer older than DLPack 1.0 (R32); its own error is the better one.
        keywords.pop("max_version")
        return x.__dlpack__(**keywords)


def _ends_the_process(x: Any) -> str | None:
    """Return why ``__dlpack__`` cannot be called at all."""
    try:
        dtype = x.dtype
        # One of TensorFlow has such a number, whatever is in `sys.modules`.
        number = dtype.as_datatype_enum
    except Exception:
        return None
    if not isinstance(number, int):
        return None
    try:
        dlx.DType(dtype)
    except (BufferError, TypeError, ValueError):
        return f"not called: TensorFlow would end the process for {dtype}"
    return None


def current_work_stream(table: Table, device: tuple[int, int]) -> Stream | None:
    """Return the stream that the table's library works on."""
    name = "current_work_stream"
    out = c_void_p()
    answer = _call_table(table, name, *device, addressof(out))
    if answer is None:
        return None
    refusal = answer.refusal()
    return Stream(name, None if refusal else out.value or 0, refusal)
