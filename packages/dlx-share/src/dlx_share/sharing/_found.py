"""What memory is: the mapping that an address is in, as the kernel knows it."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from dlx._core import OpenFile

from ._form import FILE, SEGMENT, SHM
from ._segment import inode_of, reopened, seals_of, token_of

__all__ = ["Area", "Found", "area", "found", "listed", "open_found"]

# PROCMAP_QUERY of Linux 6.11: size, flags, address; start, end, flags, page size,
# offset, inode, device; lengths and addresses of the name and the build id.
_QUERY = struct.Struct("<9Q4I2Q")
_PROCMAP_QUERY = 3 << 30 | _QUERY.size << 16 | ord("f") << 8 | 17
_WRITABLE, _SHARED = 2, 8
_NAME = 4096


class Area(NamedTuple):
    """A mapping of this process."""

    begin: int
    end: int
    offset: int
    """Where it begins in its file, in bytes."""
    inode: tuple[int, int]
    is_shared: bool
    is_writable: bool
    path: str


def area(address: int) -> Area | None:
    """Return the mapping that an address is in, if there is one."""
    name = array.array("B", bytes(_NAME))
    where, _ = name.buffer_info()
    query = bytearray(
        _QUERY.pack(_QUERY.size, 0, address, *[0] * 8, _NAME, 0, where, 0)
    )
    with OpenFile.open("/proc/self/maps", os.O_RDONLY) as maps:
        try:
            fcntl.ioctl(maps, _PROCMAP_QUERY, query)
        except FileNotFoundError:
            return None
        except OSError:
            return listed(address)
    _, _, _, begin, end, flags, _, offset, inode, *rest = _QUERY.unpack(query)
    major, minor, length, *_ = rest
    path = os.fsdecode(name.tobytes()[: max(length - 1, 0)])
    device = os.makedev(major, minor)
    shared, writable = bool(flags & _SHARED), bool(flags & _WRITABLE)
    return Area(begin, end, offset, (device, inode), shared, writable, path)


def listed(address: int) -> Area | None:
    """Return the same by the list of all mappings, as before Linux 6.11."""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            bounds, access, offset, device, inode, *name = line.split(None, 5)
            begin, end = (int(bound, 16) for bound in bounds.split(b"-"))
            if begin <= address < end:
                major, minor = (int(part, 16) for part in device.split(b":"))
                path = b"".join(name).rstrip(b"\n").replace(b"\\012", b"\n")
                return Area(
                    *(begin, end, int(offset, 16)),
                    (os.makedev(major, minor), int(inode)),
                    access[3:4] == b"s",
                    access[1:2] == b"w",
                    os.fsdecode(path),
                )
    return None


class Found(NamedTuple):
    """A file that memory is shared with, and where in it the memory begins."""

    inode: tuple[int, int]
    offset: int
    is_writable: bool
    path: str


def found(
    address: int, length: int, area: Callable[[int], Area | None] = area
) -> Found | str:
    """Return what these bytes are shared with, or in words what memory they are."""
    try:
        first = area(address)
    except OSError as error:
        return f"memory that /proc does not tell of: {error.strerror}"
    if first is None or not first.inode[1]:
        return "memory of this process alone"
    if not first.is_shared:
        return f"a private mapping of {first.path!r}, which may hold changed pages"
    writable, last = first.is_writable, first
    # Protection and advice for parts of a mapping divide it.
    while last.end < address + length:
        after = area(last.end)
        begin = last.offset + last.end - last.begin
        if (
            after is None
            or (after.inode, after.offset, after.is_shared)
            != (first.inode, begin, True)
            or after.begin != last.end
        ):
            return "memory of several mappings"
        writable, last = writable and after.is_writable, after
    offset = first.offset + address - first.begin
    return Found(first.inode, offset, writable, first.path)


def _candidates(path: str) -> Iterator[str]:
    """Yield paths that may lead to a file, the cheaper ones first."""
    if path and not path.endswith(" (deleted)"):
        yield path
    with suppress(OSError):
        for file in os.listdir("/proc/self/fd"):
            yield f"/proc/self/fd/{file}"


def open_found(
    inode: tuple[int, int], path: str, writable: bool
) -> tuple[OpenFile, int, int, bytes, bytes] | None:
    """Open a file; return its descriptor, size, and kind, token and path."""
    for place in _candidates(path):
        try:
            found = os.stat(place)
            if (found.st_dev, found.st_ino) != inode or not stat.S_ISREG(found.st_mode):
                continue
            # Somebody may exchange what is there, but not what O_PATH has found.
            with OpenFile.open(place, os.O_PATH) as file:
                if inode_of(file) != inode:
                    continue
                opened = reopened(file, os.O_RDWR if writable else os.O_RDONLY)
        except OSError:
            continue
        seals = seals_of(opened)
        if seals is not None:
            token = token_of(opened, seals)
            kind = SEGMENT if token else SHM
            return opened, found.st_size, kind, token or bytes(16), b""
        # A file on a disk that has no path any more is nowhere to be found again.
        if place == path:
            return opened, found.st_size, FILE, bytes(16), os.fsencode(path)
        opened.close()
    return None
