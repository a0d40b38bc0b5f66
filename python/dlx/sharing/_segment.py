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
from contextlib import suppress
from functools import cache
from typing import Any
from weakref import WeakValueDictionary, finalize, ref

from ..pickling import _READ_ONLY
from ._form import FILE, FROZEN, SEGMENT, SHM, Described, host, namespace, start

__all__ = [
    "SEAL_FUTURE_WRITE",
    "TOKEN",
    "Mapping",
    "checked",
    "covering",
    "for_reading",
    "inode_of",
    "make",
    "mapped",
    "opened",
    "reopened",
    "seals_of",
    "token_of",
]

SEAL_FUTURE_WRITE = 0x10
"""``F_SEAL_FUTURE_WRITE``: what is mapped for writing stays so, no new mapping is."""
_SHAPED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_FROZEN = _SHAPED | fcntl.F_SEAL_WRITE
TOKEN = os.urandom(16)
"""In the name of each segment that this process and its forks make."""


def inode_of(file: int | str) -> tuple[int, int]:
    """Return device and inode of a file."""
    found = os.stat(file)
    return found.st_dev, found.st_ino


def seals_of(file: int) -> int | None:
    """Return the seals of a file; None if it is not in memory: only such have seals."""
    try:
        return fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:
        return None


_NAME = re.compile(r"/memfd:dlx-([0-9a-f]{32}) \(deleted\)")


def token_of(file: int, seals: int) -> bytes | None:
    """Return the token in the name of a segment; None if a file on tmpfs is none."""
    name = _NAME.fullmatch(os.readlink(f"/proc/self/fd/{file}"))
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


def for_reading(file: int, seals: int = 0) -> int:
    """Seal a segment, if asked; return in its place a descriptor that cannot write."""
    try:
        if seals:
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
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
    try:
        gone = start(d.pid) != d.start
    except OSError:
        gone = True
    if gone:
        return BufferError(f"process {d.pid}, which shared the memory, is gone")
    if isinstance(error, PermissionError):
        return BufferError(
            f"process {d.pid} is of another user; send the handle through a socket"
        )
    return BufferError(
        "the handle was closed; keep it, or send it pickled to one that does"
    )


def opened(d: Described) -> int:
    """Open what a handle names, or raise ``BufferError``."""
    if d.boot != host():
        raise BufferError("the handle is of another host, or from before a restart")
    path: str | bytes = d.path
    # O_PATH opens no device and no pipe, and nobody can exchange what it found.
    mode = os.O_PATH | os.O_CLOEXEC
    if d.kind == FILE:
        mode |= os.O_NOFOLLOW
    else:
        if d.namespace != namespace():
            raise BufferError(
                "the handle is of another PID namespace, such as a container"
            )
        path = f"/proc/{d.pid}/fd/{d.file}"
    try:
        # A segment has its token in its name, whoever has the PID now.
        if d.kind == SHM and start(d.pid) != d.start:
            raise ProcessLookupError
        place = os.open(path, mode)
    except OSError as error:
        raise _refused(d, error) from error
    try:
        found = os.fstat(place)
        if (found.st_dev, found.st_ino) != d.inode or not stat.S_ISREG(found.st_mode):
            raise BufferError(_OTHER)
        if d.kind != FILE and found.st_uid != os.geteuid():
            raise BufferError("the memory is of another user")
        file = reopened(place, os.O_RDONLY if d.flags & _READ_ONLY else os.O_RDWR)
    except OSError as error:
        raise BufferError(f"the memory of the handle: {error.strerror}") from error
    finally:
        os.close(place)
    return _kept(file, d)


_OTHER = "the handle is of memory that is gone, or that is not what it says"


def checked(file: int, d: Described) -> int:
    """Return a file that somebody has sent, if it is what ``d`` describes."""
    found = os.fstat(file)
    access = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
    if (
        (found.st_dev, found.st_ino) == d.inode
        and stat.S_ISREG(found.st_mode)
        and access
        in ((os.O_RDONLY, os.O_RDWR) if d.flags & _READ_ONLY else (os.O_RDWR,))
    ):
        return _kept(file, d)
    os.close(file)
    raise BufferError(_OTHER)


def _kept(file: int, d: Described) -> int:
    """Return the file of an inode if it is what ``d`` describes; else close it."""
    try:
        # First: until it is sealed, whoever has it may make it shorter.
        seals = seals_of(file)
        size = os.lseek(file, 0, os.SEEK_END)
        if d.kind == SEGMENT:
            needed = _FROZEN if d.flags & FROZEN else _SHAPED
            good = (
                seals is not None
                and seals & needed == needed
                and size == d.size
                and os.readlink(f"/proc/self/fd/{file}")
                == f"/memfd:dlx-{d.token.hex()} (deleted)"
            )
        else:
            memory = seals is not None
            good = size >= d.size and memory == (d.kind == SHM) and not d.flags & FROZEN
        if good:
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
