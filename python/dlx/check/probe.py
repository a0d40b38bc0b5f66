"""The suite's own producer: a tensor whose every field is free, and that records all.

A probe is honest unless its `Tensor` says otherwise: it obeys `max_version`, `copy` and
`dl_device` as R20 to R26 and R47 to R53 ask. Each probe has a class of its own, because
consumers remember types.
"""

from __future__ import annotations

import builtins
import ctypes
import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlx import _core
from dlx.check import structs
from dlx.check.records import Asked
from dlx.check.structs import (
    COPIED,
    DTYPES,
    PADDED,
    READ_ONLY,
    UNVERSIONED,
    VERSIONED,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    kept,
)

__all__ = [
    "NEWEST",
    "ROOM",
    "Export",
    "Memory",
    "Probe",
    "Tensor",
    "natives",
    "probe",
    "unpacked",
    "work_streams",
]

NEWEST = (1, 3)
ROOM = 4096
"""Bytes that a probe owns on both sides of its elements."""

natives: Any = _core.check_natives()

_DELETE_VERSIONED, _DELETE_UNVERSIONED, _DESTROY = natives.functions()
_WILD = 0xDEAD_0000_0000_0000


@dataclass(frozen=True)
class Tensor:
    """What a probe exports and how it answers."""

    shape: tuple[int, ...] = (2, 3)
    dtype: str | tuple[int, int, int] = "float32"
    strides: tuple[int, ...] | None = None
    """In elements; None for compact row-major."""
    byte_offset: int = 0
    off: int = 0
    """Bytes by which the first element misses an alignment of 256."""
    device: tuple[int, int] = (1, 0)
    version: tuple[int, int] = NEWEST
    flags: int = 0
    null: str = ""
    """Which of data, shape, strides, deleter and context are NULL."""
    ndim: int | None = None
    """What the struct says in place of the number of extents."""
    extents: tuple[int, ...] | None = None
    """What the struct says in place of `shape`."""
    wild: bool = False
    """Whether no pointer behind `flags` can be read."""
    name: str = ""
    """What the capsule is called in place of its right name."""
    generation: str = ""
    """The only generation of capsules that the probe exports, if not both."""
    old: bool = False
    """Whether `__dlpack__` has only the keyword `stream`, as before DLPack 1.0."""
    missing: str = ""
    """Methods that the class lacks."""
    raises: tuple[tuple[str, str], ...] = ()
    """Methods that raise, and the builtin exception."""
    copies: bool = True
    """Whether the probe can make copies."""
    table: str = ""
    """Which exchange table the class has: "", "plain", "newer", "no-borrow", ..."""
    address: int = 0
    """Where the elements are, if not in memory of the probe."""
    order: Callable[[dict[str, Any]], None] | None = None
    """Called with the keywords of each export, to order streams."""

    @property
    def packed_bits(self) -> int:
        """Return the bits of a packed element, 0 where elements have whole bytes."""
        _, bits, lanes = (
            DTYPES[self.dtype] if isinstance(self.dtype, str) else self.dtype
        )
        return 0 if self.flags & PADDED else bits * lanes % 8


def _itemsize(dtype: tuple[int, int, int]) -> int:
    return max(1, (dtype[1] * dtype[2] + 7) // 8)


def known_to_numpy(dtype: str | tuple[int, int, int]) -> Any:
    """Return NumPy's dtype of this name, or None."""
    try:
        return np.dtype(dtype) if isinstance(dtype, str) else None
    except TypeError:
        return None


def packed(codes: bytes, bits: int) -> bytes:
    """Pack elements of less than a byte: the first is in the lowest bits (R107)."""
    whole = sum(code << (place * bits) for place, code in enumerate(codes))
    return whole.to_bytes((len(codes) * bits + 7) // 8, "little")


def unpacked(data: bytes, bits: int, count: int) -> bytes:
    """Return packed elements, one in each byte."""
    whole = int.from_bytes(data, "little")
    mask = (1 << bits) - 1
    return bytes(whole >> (place * bits) & mask for place in range(count))


class Memory:
    """Elements 1, 2, 3, ... in pages of their own, between pages of a pattern."""

    def __init__(self, spec: Tensor) -> None:
        """Lay out the elements of `spec`."""
        named = self.named = spec.dtype
        self.dtype = DTYPES[named] if isinstance(named, str) else named
        self.item = _itemsize(self.dtype)
        self.bits = spec.packed_bits
        self.shape = spec.shape
        self.strides = spec.strides or structs.row_major(spec.shape)
        ends = [
            (n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if n > 0
        ]
        before = -sum(min(0, end) for end in ends) * self.item
        after = (sum(max(0, end) for end in ends) + 1) * self.item
        size = ROOM + before + spec.off + after + ROOM
        self.pages = kept(mmap.mmap(-1, size))
        self.bytes = np.frombuffer(self.pages, np.uint8)
        self.bytes[:] = 0x5A
        self.address = int(self.bytes.ctypes.data)
        self.size = size
        self.first = ROOM + before + spec.off
        self._fill(named)
        self.expected = self.values()
        """What a consumer has to see; the deleter overwrites the memory."""

    @property
    def data(self) -> int:
        """Return the address of the first element."""
        return self.address + self.first

    def _fill(self, named: str | tuple[int, int, int]) -> None:
        counted = np.arange(1, math.prod(self.shape) + 1)
        if self.bits:
            self._pack(bytes(counted.tolist()))
            return
        if known := known_to_numpy(named):
            counted = counted.astype(known).view(np.uint8)
        else:
            counted = np.repeat(counted.astype(np.uint8), self.item)
        self.elements[...] = counted.reshape(*self.shape, self.item)

    @property
    def numbers(self) -> Any:
        """Return the elements as NumPy has them, None if it lacks the dtype."""
        known = known_to_numpy(self.named)
        if known is None:
            return None
        return np.frombuffer(self.expected, known).reshape(self.shape)

    @property
    def elements(self) -> Any:
        """Return the elements as bytes, with one dimension more than the shape."""
        return np.lib.stride_tricks.as_strided(
            self.bytes[self.first :],
            (*self.shape, self.item),
            (*(s * self.item for s in self.strides), 1),
        )

    def _pack(self, codes: bytes) -> None:
        data = packed(codes, self.bits)
        self.bytes[self.first : self.first + len(data)] = np.frombuffer(data, np.uint8)

    def values(self) -> bytes:
        """Return the elements in row-major order, packed ones in a byte each."""
        if self.bits:
            data = self.bytes[self.first :][: self.size - ROOM - self.first]
            return unpacked(data.tobytes(), self.bits, math.prod(self.shape))
        return bytes(self.elements.tobytes())

    def change(self) -> None:
        """Write other elements, as the owner of the memory may."""
        if self.bits:
            self._pack(bytes(code ^ 1 for code in self.values()))
        else:
            self.elements[...] = self.elements ^ 1
        self.expected = self.values()


class Export:
    """One managed tensor that a probe handed out."""

    def __init__(self, spec: Tensor, memory: Memory, versioned: bool) -> None:
        """Fill a struct, which is never freed: its deleter may be called too often."""
        self.memory = memory
        self.versioned = versioned
        kind: Any = DLManagedTensorVersioned if versioned else DLManagedTensor
        extents = spec.shape if spec.extents is None else spec.extents
        rank = len(spec.shape)
        # Who believes `ndim` reads ones, and not what happens to lie there.
        room = max(rank, spec.ndim or 0)
        self._buffer = kept(ctypes.create_string_buffer(64 + 80 + 16 * room + 16))
        start = ctypes.addressof(self._buffer)
        self._counts = (ctypes.c_uint64 * 4).from_address(start)
        # A read-only mapping is not the probe's to overwrite.
        self._counts[2], self._counts[3] = memory.address, memory.size
        self.address = start + 64
        self.struct = kind.from_address(self.address)
        dimensions = (ctypes.c_int64 * (2 * room)).from_address(start + 144)
        if room:
            np.ctypeslib.as_array(dimensions)[:] = 1
        dimensions[:rank] = [*extents]
        dimensions[room : room + rank] = [*memory.strides]
        tensor = self.struct.dl_tensor
        words = ctypes.addressof(tensor)
        tensor.device.device_type, tensor.device.device_id = spec.device
        tensor.ndim = rank if spec.ndim is None else spec.ndim
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = memory.dtype
        tensor.byte_offset = spec.byte_offset
        pointers = {
            "data": (0, spec.address or memory.data - spec.byte_offset),
            "shape": (24, start + 144),
            "strides": (32, start + 144 + 8 * room),
        }
        for name, (offset, address) in pointers.items():
            wild = _WILD if spec.wild else address
            ctypes.c_void_p.from_address(words + offset).value = (
                None if name in spec.null.split() else wild
            )
        if versioned:
            self.struct.version.major, self.struct.version.minor = spec.version
            self.struct.flags = spec.flags
        if "context" not in spec.null.split():
            self.struct.manager_ctx = self.address
        if "deleter" not in spec.null.split():
            self.struct.deleter = (
                _DELETE_VERSIONED if versioned else _DELETE_UNVERSIONED
            )
        self.capsule_name = spec.name or (VERSIONED if versioned else UNVERSIONED)

    def capsule(self) -> Any:
        """Return a capsule that owns the struct."""
        return structs.new_capsule(self.address, self.capsule_name, _DESTROY)

    @property
    def deleted(self) -> int:
        """Return how often the deleter was called."""
        return int(self._counts[0])

    @property
    def destroyed(self) -> int:
        """Return how many capsules died before anybody consumed them."""
        return int(self._counts[1])


class Probe:
    """The base of all probes; `probe` makes a class and an instance."""

    spec: Tensor
    memory: Memory
    calls: list[Asked]
    exports: list[Export]
    capsules: list[Any]
    """The capsules that were handed out and that the suite still holds."""
    error: BaseException | None

    def record(self, method: str, keywords: dict[str, Any]) -> None:
        """Record a call, and raise what the tensor says."""
        self.calls.append(Asked(method, {k: _plain(v) for k, v in keywords.items()}))
        for name, error in self.spec.raises:
            if name == method:
                self.error = getattr(builtins, error)("raised by the probe")
                raise self.error

    def export(self, versioned: bool, copy: bool = False) -> Export:
        """Hand out a managed tensor."""
        spec, memory = self.spec, self.memory
        if copy:
            spec = replace(spec, flags=spec.flags & ~READ_ONLY | COPIED)
            memory = Memory(spec)
        made = Export(spec, memory, versioned)
        self.exports.append(made)
        return made

    def dlpack(
        self,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """Answer as the array API asks a producer to."""
        spec = self.spec
        if dl_device is not None and tuple(dl_device) != spec.device:
            raise BufferError("the probe is on another device")
        if copy is True and not spec.copies:
            raise BufferError("the probe makes no copies")
        major, _ = (0, 0) if max_version is None else max_version
        versioned = major >= 1
        if spec.generation:
            versioned = spec.generation == "versioned"
        if not versioned and spec.flags & READ_ONLY and not spec.generation:
            raise BufferError("an unversioned capsule cannot say that it is read-only")
        self.capsules.append(self.export(versioned, copy is True).capsule())
        return self.capsules[-1]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if type(value) in (int, bool, float, str, type(None)):
        return value
    return f"{type(value).__name__}: {value!r}"


def _device(self: Any) -> tuple[int, int]:
    self.record("__dlpack_device__", {})
    place: tuple[int, int] = self.spec.device
    return place


def _dlpack(self: Any, **keywords: Any) -> Any:
    self.record("__dlpack__", keywords)
    known = {"stream", "max_version", "dl_device", "copy"}
    if unknown := keywords.keys() - known:
        raise TypeError(f"__dlpack__() got unexpected keywords {sorted(unknown)}")
    if self.spec.order is not None:
        self.spec.order(keywords)
    keywords.pop("stream", None)
    return self.dlpack(**keywords)


def _old_dlpack(self: Any, **keywords: Any) -> Any:
    self.record("__dlpack__", keywords)
    if unknown := keywords.keys() - {"stream"}:
        raise TypeError(f"__dlpack__() got unexpected keywords {sorted(unknown)}")
    return self.dlpack()


def probe(spec: Tensor) -> Any:
    """Make a probe of a new class."""
    body: dict[str, Any] = {
        "__dlpack__": _old_dlpack if spec.old else _dlpack,
        "__dlpack_device__": _device,
    }
    for name in spec.missing.split():
        del body[name]
    if spec.table:
        body["__dlpack_c_exchange_api__"] = table_capsule(spec.table)
    made = kept(type("Probe", (Probe,), body))()
    made.spec, made.memory = spec, Memory(spec)
    made.calls, made.exports, made.capsules, made.error = [], [], [], None
    return made


work_streams: dict[int, int] = {}
"""The current streams of probes, by type of device."""


def _hook(function: int, a: int, b: int, c: int, d: int) -> Any:
    """Answer the table functions of probes; only exports make sense for them."""
    if function in (1, 3):
        asked = structs.object_at(a)
        name = DLPackExchangeAPI.ENTRIES[function]
        if not isinstance(asked, Probe):
            raise TypeError(f"{name} of a {type(asked).__name__}")
        asked.record(name, {})
        made = asked.export(versioned=True)
        if function == 1:
            ctypes.c_void_p.from_address(b).value = made.address
        else:
            ctypes.memmove(b, made.address + 32, 48)
        return 0
    if function == 4:
        ctypes.c_void_p.from_address(c).value = work_streams.get(a)
        return 0
    raise BufferError("a probe only exports")


_FUNCTIONS = natives.table(_hook)


def table_capsule(kind: str) -> Any:
    """Return the capsule of a new table of a probe's functions."""
    table = kept(DLPackExchangeAPI())
    table.version.major, table.version.minor = NEWEST
    for name, address in zip(DLPackExchangeAPI.ENTRIES, _FUNCTIONS, strict=True):
        setattr(table, name, address)
    if kind == "no-borrow":
        table.dltensor_from_py_object_no_sync = None
    if kind == "newer":
        table.version.major = 2
        for name in DLPackExchangeAPI.ENTRIES:
            setattr(table, name, _WILD)
    if kind == "newer-before-plain":
        older = table_capsule("plain")
        table = kept(DLPackExchangeAPI())
        table.version.major = 2
        table.prev_api = structs.capsule_pointer(older, structs.TABLE)
        for name in DLPackExchangeAPI.ENTRIES:
            setattr(table, name, _WILD)
    return structs.new_capsule(ctypes.addressof(table), structs.TABLE)
