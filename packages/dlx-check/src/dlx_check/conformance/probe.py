"""What a probe exports: a tensor whose every field is free, in memory of its own."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlx_check import natives
from dlx_check.conformance import structs
from dlx_check.conformance.structs import (
    DTYPES,
    PADDED,
    UNVERSIONED,
    VERSIONED,
    DLManagedTensor,
    DLManagedTensorVersioned,
    kept,
)

__all__ = [
    "NEWEST",
    "ROOM",
    "WILD",
    "Export",
    "Memory",
    "Tensor",
    "packed",
    "unpacked",
]

NEWEST = (1, 3)
ROOM = 4096
"""Bytes that a probe owns on both sides of its elements."""

_DELETE_VERSIONED, _DELETE_UNVERSIONED, _DESTROY = natives.functions()
WILD = 0xDEAD_0000_0000_0000


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
        self._laid_out = self.bytes.tobytes()

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

    @property
    def written(self) -> bool:
        """Return whether a byte of the pages is not as it was laid out."""
        return self.bytes.tobytes() != self._laid_out

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
            wild = WILD if spec.wild else address
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
