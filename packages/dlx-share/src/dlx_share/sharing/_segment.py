"""Segments and other files that hold shared memory: made, opened and checked."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from itertools import chain

from dlx.pickling import _READ_ONLY

from ._form import FILE, FROZEN, SEGMENT, SHM, Described, host, namespace, start
from ._mappings import huge_pages

__all__ = [
    "SEAL_FUTURE_WRITE",
    "TOKEN",
    "checked",
    "for_reading",
    "inode_of",
    "located",
    "make",
    "opened",
    "opened_at",
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
            _write(file, raw)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SHAPED)
    except BaseException:
        os.close(file)
        raise
    return file


def _write(file: int, raw: memoryview) -> None:
    """Write these bytes, all that can into huge pages."""
    done = 0
    for end in chain(huge_pages(file, len(raw)), (len(raw),)):
        # Faster than through a mapping, which faults once for each page.
        while done < end:
            done += os.pwrite(file, raw[done:end], done)


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


def located(d: Described) -> int:
    """Return a descriptor, for `os.O_PATH`, of what a handle names, or refuse it."""
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
    found = os.fstat(place)
    if (found.st_dev, found.st_ino) != d.inode or not stat.S_ISREG(found.st_mode):
        reason = _OTHER
    elif d.kind != FILE and found.st_uid != os.geteuid():
        reason = "the memory is of another user"
    else:
        return place
    os.close(place)
    raise BufferError(reason)


def opened_at(place: int, d: Described) -> int:
    """Open what `located` has found, if it is what ``d`` describes."""
    try:
        file = reopened(place, os.O_RDONLY if d.flags & _READ_ONLY else os.O_RDWR)
    except OSError as error:
        raise BufferError(f"the memory of the handle: {error.strerror}") from error
    return _kept(file, d)


def opened(d: Described) -> int:
    """Open what a handle names, or raise ``BufferError``."""
    place = located(d)
    try:
        return opened_at(place, d)
    finally:
        os.close(place)


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
