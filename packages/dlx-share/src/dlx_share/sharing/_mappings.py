"""Files in the memory of this process: mapped, and found by address."""

from __future__ import annotations

import mmap
from typing import Self
from weakref import WeakValueDictionary

from dlx._core import MappedFile, OpenFile
from dlx._core import covering as _begin

from ._form import FROZEN, SEGMENT, Described

__all__ = ["Mapping", "covering", "mapped", "segment"]

Segment = tuple[bytes, int, int]
"""Its token, its size in bytes, and whether it is frozen: none of it changes."""


def segment(d: Described) -> Segment | None:
    """Return what the segment has to be that ``d`` describes; None for other files."""
    return (d.token, d.size, d.flags & FROZEN) if d.kind == SEGMENT else None


class Mapping(MappedFile):
    """Bytes of a file in the memory of this process, from byte ``offset`` of it.

    ``owner`` is what lives as long as it does. ``of_segment`` is what was found out
    about the file when it was opened, if it is a segment.
    """

    __slots__ = "inode", "of_segment", "offset", "owner"

    inode: tuple[int, int]
    of_segment: Segment | None
    offset: int
    owner: object

    @classmethod
    def of(cls, file: OpenFile, d: Described, prot: int, flags: int) -> Self:
        """Map all that ``d`` describes, or for a private mapping, its elements."""
        offset, size = 0, d.size
        if flags == mmap.MAP_PRIVATE:
            # The kernel may ask for as much memory as could be written to.
            offset = d.offset // mmap.PAGESIZE * mmap.PAGESIZE
            size = max(d.offset + d.length - offset, 1)
        try:
            mapping = cls(file, size, prot, flags, offset)
        except OSError as error:
            raise BufferError(
                f"{size} bytes of the handle cannot be mapped: {error.strerror}"
            ) from error
        mapping.offset, mapping.inode = offset, d.inode
        mapping.owner, mapping.of_segment = None, segment(d)
        if flags == mmap.MAP_SHARED:
            _made[mapping.address] = mapping
        return mapping

    def holds(self, d: Described) -> bool:
        """Whether all elements that ``d`` describes are in it."""
        end = self.offset + self.size
        return self.offset <= d.offset and d.offset + d.length <= end

    def memory(self, d: Described) -> memoryview:
        """Return the bytes of these elements, which keep the mapping."""
        begin = d.offset - self.offset
        return memoryview(self)[begin : begin + d.length]


mapped: WeakValueDictionary[tuple[tuple[int, int], bool], Mapping]
mapped = WeakValueDictionary()
"""Shared mappings of this process, by inode and whether one can write."""
# The same by their addresses.
_made: WeakValueDictionary[int, Mapping] = WeakValueDictionary()


def covering(address: int, length: int) -> Mapping | None:
    """Return the shared mapping of dlx that holds these bytes, if there is one."""
    begin = _begin(address, length)
    return None if begin is None else _made.get(begin)
