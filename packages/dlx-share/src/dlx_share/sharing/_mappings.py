"""Files in the memory of this process: mapped, found by address, and unmapped."""

from __future__ import annotations

import ctypes
import mmap
import os
from _thread import RLock
from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any
from weakref import WeakValueDictionary, finalize, ref

from ._form import FROZEN, SEGMENT, Described

__all__ = ["Mapping", "covering", "huge_pages", "mapped", "segment"]


def _loaded() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return libc


_LIBC = _loaded()
_FAILED = ctypes.c_void_p(-1).value  # MAP_FAILED


Segment = tuple[bytes, int, int]
"""Its token, its size in bytes, and whether it is frozen: none of it changes."""


def segment(d: Described) -> Segment | None:
    """Return what the segment has to be that ``d`` describes; None for other files."""
    return (d.token, d.size, d.flags & FROZEN) if d.kind == SEGMENT else None


class Mapping:
    """Bytes of a file in the memory of this process, from byte ``offset`` of it.

    It holds no file descriptor. What it maps itself it unmaps; other memory belongs to
    ``owner``. ``of_segment`` is what was found out about the file when it was opened,
    if it is a segment.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "inode",
        "is_writable",
        "of_segment",
        "offset",
        "owner",
        "size",
    )

    def __init__(
        self,
        address: int,
        size: int,
        offset: int,
        inode: tuple[int, int],
        is_writable: bool,
        owner: object = None,
    ) -> None:
        """Note memory that is mapped."""
        self.address, self.size, self.offset = address, size, offset
        self.inode, self.is_writable, self.owner = inode, is_writable, owner
        self.of_segment: Segment | None = None

    @classmethod
    def of(cls, file: int, d: Described, prot: int, flags: int) -> Mapping:
        """Map all that ``d`` describes, or for a private mapping, its elements."""
        offset, size = 0, d.size
        if flags == mmap.MAP_PRIVATE:
            # The kernel may ask for as much memory as could be written to.
            offset = d.offset // mmap.PAGESIZE * mmap.PAGESIZE
            size = max(d.offset + d.length - offset, 1)
        address = _LIBC.mmap(None, size, prot, flags, file, offset)
        if address == _FAILED:
            reason = os.strerror(ctypes.get_errno())
            raise BufferError(f"{size} bytes of the handle cannot be mapped: {reason}")
        mapping = cls(address, size, offset, d.inode, bool(prot & mmap.PROT_WRITE))
        mapping.of_segment = segment(d)
        if flags == mmap.MAP_SHARED:
            _add(mapping)
        finalize(mapping, _unmap, address, size).atexit = False
        return mapping

    def holds(self, d: Described) -> bool:
        """Whether all elements that ``d`` describes are in it."""
        end = self.offset + self.size
        return self.offset <= d.offset and d.offset + d.length <= end

    def memory(self, d: Described) -> memoryview:
        """Return the bytes of these elements, which keep the mapping."""
        # A type for each length would take longer than the rest.
        kind = _bytes(d.length.bit_length())
        memory: Any = kind.from_address(self.address + d.offset - self.offset)
        memory.mapping = self
        return memoryview(memory)[: d.length]


@cache
def _bytes(bits: int) -> type[ctypes.Array[ctypes.c_ubyte]]:
    return ctypes.c_ubyte * (1 << bits)


mapped: WeakValueDictionary[tuple[tuple[int, int], bool], Mapping]
mapped = WeakValueDictionary()
"""Shared mappings of this process, by inode and whether one can write."""
# Those that dlx has made, and where they begin, in order; none begins at 0.
_made: dict[int, ref[Mapping]] = {}
_begins = [0]


# A collection while it is held may unmap what is lost.
_lock = RLock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


def _add(mapping: Mapping) -> None:
    with _lock:
        _made[mapping.address] = ref(mapping)
        insort(_begins, mapping.address)


def _unmap(address: int, size: int) -> None:
    # Before the kernel can give the address to another mapping.
    with _lock, suppress(ValueError):  # A private mapping is not among them.
        # One call: a collection between two may remove others.
        _begins.remove(address)
        del _made[address]
    _LIBC.munmap(address, size)


def covering(address: int, length: int) -> Mapping | None:
    """Return the shared mapping of dlx that holds these bytes, if there is one."""
    with _lock:
        begin = address + 1
        while begin > address:
            place = bisect_right(_begins, address) - 1
            # A collection in between may remove others, and then this is a later one.
            try:
                begin = _begins[place]
            except IndexError:
                continue
    known = _made.get(begin)
    mapping = known and known()
    if mapping and address + length <= mapping.address + mapping.size:
        return mapping
    return None


_MAP_FIXED, _MADV_COLLAPSE = 16, 25


@cache
def _huge() -> int:
    """Return the size of a huge page; 0 if the kernel has none for files in memory."""
    try:
        with open("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def huge_pages(file: int, size: int) -> Iterator[int]:
    """Give a new file in memory huge pages, one at a time; yield where each ends.

    One is cleared at once and freed at once, and takes a place of the TLB, where 512
    small ones fault, are counted and are freed one by one. It ends where the kernel
    has none to give, and with the last that ``size`` bytes fill.
    """
    if not (huge := _huge()) or size < huge:
        return
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    # Only where the address is aligned as the place in the file is.
    reserved = _LIBC.mmap(None, size + huge, 0, flags, -1, 0)
    if reserved == _FAILED:
        return
    try:
        begin, prot = -(-reserved // huge) * huge, mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | _MAP_FIXED
        # While a child has it, the kernel does not freeze the segment.
        with _lock:
            if _LIBC.mmap(begin, size, prot, flags, file, 0) == _FAILED:
                return
            _LIBC.madvise(begin, size, mmap.MADV_DONTFORK)
        for place in range(0, size - huge + 1, huge):
            # The kernel collapses what has a page.
            os.pwrite(file, b"\0", place)
            if _LIBC.madvise(begin + place, huge, _MADV_COLLAPSE):
                return
            yield place + huge
    finally:
        _LIBC.munmap(reserved, size + huge)
