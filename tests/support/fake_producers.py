"""Fake DLPack producers: every tensor field is settable, every deleter counted."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Sequence
from ctypes import addressof, c_char, c_float, c_int64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from types import EllipsisType
from typing import Any, ClassVar, NoReturn, Self

from support.compiled import compiled
from support.dlpack_abi import (
    Deleter,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLTensor,
    dlpack_include,
    for_ever,
    new_capsule,
)

ADDRESS = 0x10000
"""An address that no test reads."""

KEYWORDS = frozenset({"stream", "max_version", "dl_device", "copy"})


@cache
def c_library() -> ctypes.PyDLL:
    """Return `fake_table.c` as a library."""
    return compiled("fake_table.c", dlpack_include())


@cache
def c_function(name: str) -> int:
    """Return the address of a function of `fake_table.c`."""
    return ctypes.cast(c_library()[name], c_void_p).value or 0


def row_major(shape: Sequence[int]) -> list[int]:
    """Return the strides of a compact row-major tensor, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


class Export:
    """A managed tensor that a producer gave away; the producer outlives it."""

    def __init__(self, producer: Producer, versioned: bool) -> None:
        """Build the struct; its deleter counts in `deleted` unless overridden."""
        kind = DLManagedTensorVersioned if versioned else DLManagedTensor
        at = producer.managed_at
        self.producer = producer
        self.managed: Any = kind() if at is None else kind.from_address(at)
        self.address = addressof(self.managed)
        self._deleted = c_int64()
        self.managed.manager_ctx = addressof(self._deleted)
        deleter = producer.deleter
        if deleter is ...:
            deleter = c_function("delete_versioned" if versioned else "delete_legacy")
        self.managed.deleter = ctypes.cast(deleter, Deleter)
        if versioned:
            self.managed.version = producer.version
            self.managed.flags = producer.flags
        self.managed.dl_tensor = producer.tensor

    @property
    def deleted(self) -> int:
        """Return how often the deleter was called."""
        return self._deleted.value


# Exports whose deleter has not run: a consumer may use what nothing else keeps alive.
_alive: list[Export] = for_ever([])
_exporting = threading.Lock()


def _forget_deleted() -> None:
    _alive[:] = [export for export in _alive if export.deleted == 0]


@dataclass(eq=False, kw_only=True)
class Producer:
    """An object with `__dlpack__` over its own memory: float32 0.0 to 255.0.

    The fields are written to the tensor as given, right or wrong. Each export has its
    own managed tensor; all share the shape and strides of `tensor`.
    """

    memory: Any = field(default=None, repr=False)
    """Writable C-contiguous buffer (ctypes, numpy, bytearray) to use instead."""
    data: int | None = None
    """`DLTensor.data`: 0 for NULL, by default the address of `memory`."""
    byte_offset: int = 0
    shape: Sequence[int] | None = (2, 3)
    """None for NULL."""
    strides: Sequence[int] | EllipsisType | None = ...
    """In elements; None for NULL, by default compact row-major."""
    ndim: int | None = None
    """By default the length of `shape`."""
    dtype: tuple[int, int, int] = (2, 32, 1)
    device: tuple[int, int] = (1, 0)
    versioned: bool | None = None
    """Kind of every export; by default the one that `max_version` asks for."""
    version: tuple[int, int] = (1, 3)
    flags: int = 0
    deleter: Any = ...
    """Address or ctypes function, None for NULL; by default one that only counts."""
    managed_at: int | None = None
    """Address in the caller's memory to build the managed tensor at."""
    tensor: DLTensor = field(init=False, repr=False)
    """The unmanaged view; changes show in later exports."""
    exports: list[Export] = field(init=False, repr=False, default_factory=list)
    """Every managed tensor made, in order."""
    calls: list[tuple[str, dict[str, Any]]] = field(init=False, default_factory=list)
    """Protocol methods called, with the keywords given."""

    def __post_init__(self) -> None:
        """Fill `tensor`."""
        if self.memory is None:
            self.memory = (c_float * 256)(*range(256))
        if self.data is None:
            self.data = addressof(c_char.from_buffer(self.memory))
        shape = () if self.shape is None else self.shape
        strides = row_major(shape) if self.strides is ... else self.strides
        self.tensor = DLTensor(
            data=self.data,
            device=self.device,
            ndim=len(shape) if self.ndim is None else self.ndim,
            dtype=self.dtype,
            byte_offset=self.byte_offset,
        )
        if self.shape is not None:
            self.tensor.shape = (c_int64 * len(shape))(*shape)
        if strides is not None:
            self.tensor.strides = (c_int64 * len(strides))(*strides)

    @classmethod
    def adopt(cls, address: int) -> Self:
        """Take over a versioned managed tensor: its deleter runs with the object."""
        managed = DLManagedTensorVersioned.from_address(address)
        tensor = managed.dl_tensor
        adopted = cls(
            memory=bytearray(1),
            data=tensor.data or 0,
            byte_offset=tensor.byte_offset,
            shape=tensor.shape[: tensor.ndim] if tensor.shape else None,
            strides=tensor.strides[: tensor.ndim] if tensor.strides else None,
            dtype=(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes),
            device=(tensor.device.device_type, tensor.device.device_id),
            flags=managed.flags,
        )
        if managed.deleter:
            weakref.finalize(adopted, managed.deleter, address)
        return adopted

    @property
    def deleted(self) -> int:
        """Return how often a deleter was called, over all exports."""
        _forget_deleted()
        return sum(export.deleted for export in self.exports)

    @property
    def called(self) -> list[str]:
        """Return the names of the protocol methods called, in order."""
        return [name for name, _ in self.calls]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Return the keywords of each `__dlpack__` call that its signature accepts."""
        return [keywords for name, keywords in self.calls if name == "__dlpack__"]

    @property
    def asked(self) -> dict[str, Any]:
        """Return the keywords of the only `__dlpack__` call."""
        [keywords] = self.requests
        return keywords

    def export(self, *, versioned: bool = True) -> int:
        """Return the address of a new managed tensor; the field `versioned` wins."""
        export = Export(self, self._is_versioned(versioned))
        with _exporting:
            _forget_deleted()
            _alive.append(export)
        self.exports.append(export)
        return export.address

    def _is_versioned(self, asked: bool) -> bool:
        return asked if self.versioned is None else self.versioned

    def capsule(self, *, versioned: bool = True) -> Any:
        """Make a capsule of a new export; its destructor deletes it if unused."""
        address = self.export(versioned=versioned)
        name = b"dltensor_versioned" if self._is_versioned(versioned) else b"dltensor"
        return new_capsule(address, name, c_function("destroy_capsule"))

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export as DLPack 1 asks; the keywords are recorded, not obeyed."""
        if unknown := keywords.keys() - KEYWORDS:
            raise TypeError(f"unexpected keyword arguments {sorted(unknown)}")
        self.calls.append(("__dlpack__", keywords))
        return self.capsule(versioned=(keywords.get("max_version") or (0,))[0] >= 1)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Device type and index."""
        self.calls.append(("__dlpack_device__", {}))
        return self.device


class OldProducer(Producer):
    """A producer from before DLPack 1: it takes only `stream`."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        """Export a legacy capsule; a `stream` of None is recorded as not given."""
        keywords = {} if stream is None else {"stream": stream}
        self.calls.append(("__dlpack__", keywords))
        return self.capsule(versioned=False)


class Refusing(Producer):
    """A producer whose `__dlpack__` raises `error`; the tensor itself is fine."""

    error: BaseException

    def __dlpack__(self, **keywords: Any) -> NoReturn:
        """Record the call and raise."""
        self.calls.append(("__dlpack__", keywords))
        raise self.error


class Claiming(Producer):
    """A producer whose `__dlpack_device__` returns `claim`, whatever it exports."""

    claim: Any = (1, 0)

    def __dlpack_device__(self) -> Any:
        """Return the claim."""
        return self.claim


def listening(base: type[Any]) -> type[Any]:
    """Make a subclass whose instances record attribute lookups."""

    class Listening(base):  # type: ignore[misc]
        heard: ClassVar[list[str]] = []

        def __getattribute__(self, name: str) -> Any:
            Listening.heard.append(name)
            return super().__getattribute__(name)

    return Listening
