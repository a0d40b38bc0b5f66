"""Exports an object in each way that it has, reads the export, and drops it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Any

import dlx
from dlx._inspection.capsules import described, read_capsule, read_managed
from dlx._inspection.memory import can_be_called
from dlx._inspection.records import Capsule, ManagedTensor, Stream, Table, Tensor
from dlx._structs import (
    DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION,
    Deleter,
    DLPackCurrentWorkStream,
    DLPackDLTensorFromPyObjectNoSync,
    DLPackManagedTensorFromPyObjectNoSync,
    DLTensor,
    is_capsule,
)

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
    first = str(error).strip().partition("\n")[0]
    return f"raises {name}: {first[:_LONGEST]}".removesuffix(": ")


def ask_device(x: Any) -> tuple[tuple[int, int] | None, str | None]:
    """Return what ``__dlpack_device__`` gives, or what is to be said of it."""
    try:
        answer = x.__dlpack_device__()
    except Exception as error:
        return None, raised(error)
    try:
        kind, index = answer
        return (int(kind), int(index)), None
    except (TypeError, ValueError):
        return None, f"gives {short(answer)}"


def short(x: object) -> str:
    """Return the start of a repr that may fail."""
    try:
        return repr(x)[:_LONGEST]
    except Exception as error:
        return f"an object whose repr {raised(error)}"


def borrowed(x: Any, table: Table) -> Outcome | None:
    """Return the view that the table lends; None if it lends none."""
    out = DLTensor()
    code = _function(table, BORROWED, DLPackDLTensorFromPyObjectNoSync)
    if code is None:
        return None
    refusal = _refusal(lambda: code(x, byref(out)))
    if refusal is not None:
        return Outcome(BORROWED, refusal=refusal)
    return Outcome(BORROWED, described(out, BORROWED))


def exported_by_table(x: Any, table: Table) -> Outcome | None:
    """Export by the table, and delete the export; None if the table cannot."""
    out = c_void_p()
    code = _function(table, EXPORTED, DLPackManagedTensorFromPyObjectNoSync)
    if code is None:
        return None
    refusal = _refusal(lambda: code(x, byref(out)))
    if refusal is None and not out.value:
        refusal = "returns 0 and no tensor"
    if refusal is not None or out.value is None:
        return Outcome(EXPORTED, refusal=refusal)
    managed, tensor, unreadable = read_managed(
        out.value, versioned=True, source=EXPORTED
    )
    if managed is not None and can_be_called(managed.deleter.address):
        try:
            Deleter(managed.deleter.address)(out)
        except Exception as error:
            return Outcome(EXPORTED, refusal=f"has a deleter that {raised(error)}")
    return Outcome(EXPORTED, tensor, managed, unreadable=unreadable)


def _refusal(call: Callable[[], int]) -> str | None:
    try:
        code = call()
    except Exception as error:
        return raised(error)
    return None if code == 0 else f"returns {code} and sets no exception"


def _function(table: Table, name: str, prototype: Any) -> Any:
    location = table.functions.get(name)
    if location is None or not can_be_called(location.address):
        return None
    return prototype(location.address)


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
    tensor: Any = getattr(sys.modules.get("tensorflow"), "Tensor", None)
    if tensor is None or not isinstance(x, tensor):
        return None
    try:
        dlx.DType(x.dtype)
    except (BufferError, TypeError, ValueError):
        return f"not called: TensorFlow would end the process for {x.dtype}"
    return None


def current_work_stream(table: Table, device: tuple[int, int]) -> Stream | None:
    """Return the stream that the table's library works on."""
    name = "current_work_stream"
    code = _function(table, name, DLPackCurrentWorkStream)
    if code is None:
        return None
    out = c_void_p()
    refusal = _refusal(lambda: code(*device, byref(out)))
    return Stream(name, None if refusal else out.value or 0, refusal)
