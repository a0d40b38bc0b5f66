"""Segments and other files that hold shared memory: made, opened and mapped."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
import stat
from _thread import RLock
from bisect import bisect_right, insort
from functools import cache
from typing import Any
from weakref import WeakValueDictionary, finalize

from ..pickling import _READ_ONLY
from ._form import FILE, FROZEN, SEGMENT, Described, host, namespace, start

__all__ = [
    "SEAL_FUTURE_WRITE",
    "TOKEN",
    "Mapping",
    "checked",
    "covering",
    "freeze",
    "inode_of",
    "is_on_tmpfs",
    "make",
    "mapped",
    "opened",
    "reopened",
    "token_of",
]

SEAL_FUTURE_WRITE = 0x10
"""``F_SEAL_FUTURE_WRITE``: what is mapped for writing stays so, no new mapping is."""
_SHAPED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
TOKEN = os.urandom(16)
"""In the name of each segment that this process and its forks make."""


def inode_of(file: int | str) -> tuple[int, int]:
    """Return device and inode of a file."""
    found = os.stat(file)
    return found.st_dev, found.st_ino


def is_on_tmpfs(file: int) -> bool:
    """Whether a file is memory: only such have seals."""
    try:
        fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True


_NAME = re.compile(r"/memfd:dlx-([0-9a-f]{32}) \(deleted\)")


def token_of(file: int) -> bytes | None:
    """Return the token in the name of a segment; None if a file on tmpfs is none."""
    name = _NAME.fullmatch(os.readlink(f"/proc/self/fd/{file}"))
    seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    return bytes.fromhex(name[1]) if name and seals & _SHAPED == _SHAPED else None


def make(size: int, raw: memoryview | None = None) -> int:
    """Make a segment that nobody can shrink, of zeros or of these bytes."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    file = os.memfd_create(f"dlx-{TOKEN.hex()}", flags)
    try:
        os.fchmod(file, 0o600)
        os.ftruncate(file, size)
        if raw is not None:
            # Faster than through a mapping, which faults once for each page.
            done = 0
            while done < len(raw):
                done += os.pwrite(file, raw[done:], done)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SHAPED)
    except BaseException:
        os.close(file)
        raise
    return file


def freeze(file: int) -> int:
    """Seal a segment against all writes; return a descriptor that cannot, either."""
    try:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
        return reopened(file, os.O_RDONLY)
    finally:
        os.close(file)


def reopened(file: int, mode: int) -> int:
    """Open the file of a descriptor once more, with another mode."""
    return os.open(f"/proc/self/fd/{file}", mode | os.O_CLOEXEC | os.O_NONBLOCK)


def _refused(d: Described, error: OSError) -> BufferError:
    """Return the reason why what a handle names could not be opened."""
    if d.kind == FILE:
        return BufferError(f"{os.fsdecode(d.path)!r} of the handle: {error.strerror}")
    if isinstance(error, PermissionError):
        return BufferError(
            f"process {d.pid} is of another user; send the handle through a socket"
        )
    try:
        gone = start(d.pid) != d.start
    except OSError:
        gone = True
    if gone:
        return BufferError(f"process {d.pid}, which shared the memory, is gone")
    return BufferError(
        "the handle was closed; keep it, or send it pickled to one that does"
    )


def opened(d: Described) -> int:
    """Open what a handle names, or raise ``BufferError``."""
    if d.boot != host():
        raise BufferError("the handle is of another host, or from before a restart")
    path: str | bytes = d.path
    if d.kind != FILE:
        if d.namespace != namespace():
            raise BufferError(
                "the handle is of another PID namespace, such as a container"
            )
        path = f"/proc/{d.pid}/fd/{d.file}"
    mode = os.O_RDONLY if d.flags & _READ_ONLY else os.O_RDWR
    try:
        if d.kind != FILE and start(d.pid) != d.start:
            raise ProcessLookupError
        # O_PATH opens no device and no pipe, and nobody can exchange what it found.
        link = os.O_NOFOLLOW if d.kind == FILE else 0
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | link)
    except OSError as error:
        raise _refused(d, error) from error
    try:
        found = os.fstat(place)
        if (found.st_dev, found.st_ino) != d.inode or not stat.S_ISREG(found.st_mode):
            raise BufferError(_OTHER)
        if d.kind != FILE and found.st_uid != os.geteuid():
            raise BufferError("the memory is of another user")
        file = reopened(place, mode)
    except OSError as error:
        raise BufferError(f"the memory of the handle: {error.strerror}") from error
    finally:
        os.close(place)
    return checked(file, d)


_OTHER = "the handle is of memory that is gone, or that is not what it says"


def checked(file: int, d: Described) -> int:
    """Return ``file`` if it is what ``d`` describes; else close it and raise."""
    try:
        found = os.fstat(file)
        good = (found.st_dev, found.st_ino) == d.inode and stat.S_ISREG(found.st_mode)
        if d.kind == SEGMENT:
            seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
            good = good and token_of(file) == d.token and found.st_size == d.size
            good = good and (not d.flags & FROZEN or bool(seals & fcntl.F_SEAL_WRITE))
        else:
            good = good and found.st_size >= d.size and not d.flags & FROZEN
            good = good and is_on_tmpfs(file) == (d.kind != FILE)
        access = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        writes = () if d.flags & _READ_ONLY else (os.O_RDWR,)
        if good and access in (writes or (os.O_RDONLY, os.O_RDWR)):
            return file
    except OSError:
        pass
    os.close(file)
    raise BufferError(_OTHER)


def _loaded() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    return libc


_LIBC = _loaded()


class Mapping:
    """Bytes of a file in the memory of this process, from byte ``offset`` of it.

    It holds no file descriptor. What it maps itself it unmaps; other memory belongs to
    ``owner``.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "inode",
        "is_writable",
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

    @classmethod
    def of(cls, file: int, d: Described, prot: int, flags: int) -> Mapping:
        """Map all that ``d`` describes, or for a private mapping, its elements."""
        offset, size = 0, d.size
        if flags == mmap.MAP_PRIVATE:
            # The kernel may ask for as much memory as could be written to.
            offset = d.offset // mmap.PAGESIZE * mmap.PAGESIZE
            size = max(d.offset + d.length - offset, 1)
        address = _LIBC.mmap(None, size, prot, flags, file, offset)
        if address == ctypes.c_void_p(-1).value:
            reason = os.strerror(ctypes.get_errno())
            raise BufferError(f"{size} bytes of the handle cannot be mapped: {reason}")
        mapping = cls(address, size, offset, d.inode, bool(prot & mmap.PROT_WRITE))
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
# Those that dlx has made, and where they begin, in order.
_made: WeakValueDictionary[int, Mapping] = WeakValueDictionary()
_begins: list[int] = []


# A collection while it is held may unmap what is lost.
_lock = RLock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


def _add(mapping: Mapping) -> None:
    with _lock:
        _made[mapping.address] = mapping
        insort(_begins, mapping.address)


def _unmap(address: int, size: int) -> None:
    # Before the kernel can give the address to another mapping.
    with _lock:
        place = bisect_right(_begins, address) - 1
        if place >= 0 and _begins[place] == address:
            del _begins[place]
    _LIBC.munmap(address, size)


def covering(address: int, length: int) -> Mapping | None:
    """Return the shared mapping of dlx that holds these bytes, if there is one."""
    with _lock:
        place = bisect_right(_begins, address) - 1
        mapping = _made.get(_begins[place]) if place >= 0 else None
    if mapping and address + length <= mapping.address + mapping.size:
        return mapping
    return None
