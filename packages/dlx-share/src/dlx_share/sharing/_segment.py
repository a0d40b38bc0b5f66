"""Segments and other files that hold shared memory: made, opened and checked.

A handle names a segment by a PID and a descriptor, which the system uses again. So the
name of a segment has a random token of its process, which is compared with its inode,
size and seals before it is mapped. The length is read after the seals: before them,
somebody could shorten the file.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat

from dlx._core import OpenFile
from dlx.pickling import _READ_ONLY

from ._form import (
    FILE,
    FROZEN,
    SEGMENT,
    SHM,
    Described,
    host,
    lacking,
    namespace,
    start,
)

__all__ = [
    "SEAL_FUTURE_WRITE",
    "TOKEN",
    "checked",
    "doubt",
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


def _pair(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def inode_of(file: OpenFile) -> tuple[int, int]:
    """Return device and inode of a file."""
    return _pair(os.fstat(file.fileno()))


def seals_of(file: OpenFile) -> int | None:
    """Return the seals of a file; None if it is not in memory: only such have seals."""
    try:
        return fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:
        return None


_NAME = re.compile(r"/memfd:dlx-([0-9a-f]{32}) \(deleted\)")


def token_of(file: OpenFile, seals: int) -> bytes | None:
    """Return the token in the name of a segment; None if a file on tmpfs is none."""
    name = _NAME.fullmatch(os.readlink(f"/proc/self/fd/{file.fileno()}"))
    return bytes.fromhex(name[1]) if name and seals & _SHAPED == _SHAPED else None


def make(size: int, raw: memoryview | None = None) -> OpenFile:
    """Make a segment that nobody can shrink, of zeros or of these bytes."""
    return OpenFile.segment(f"dlx-{TOKEN.hex()}", size, raw)


def for_reading(file: OpenFile, seals: int = 0) -> OpenFile:
    """Seal a segment, if asked; return in its place a descriptor that cannot write."""
    with file:
        if seals:
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
        return reopened(file, os.O_RDONLY)


def reopened(file: OpenFile, mode: int) -> OpenFile:
    """Open the file of a descriptor once more, with another mode."""
    return OpenFile.open(f"/proc/self/fd/{file.fileno()}", mode | os.O_NONBLOCK)


_OTHER = "the handle is of memory that is gone, or that is not what it says"


def doubt(file: OpenFile, d: Described | None, is_own: bool = True) -> str:
    """Return why a file is not what ``d`` describes, or not that of a name; else "".

    Of a place (``O_PATH``) this is what its inode shows. ``is_own`` has it belong to
    this user, which nobody has to whose socket a handle came through.
    """
    found, access = os.fstat(file.fileno()), fcntl.fcntl(file, fcntl.F_GETFL)
    kind = None if d is None else d.kind
    if not stat.S_ISREG(found.st_mode) or (d and _pair(found) != d.inode):
        return _OTHER
    if is_own and kind != FILE and found.st_uid != os.geteuid():
        return "the memory is of another user"
    # Whoever may write to a file decides what it says, and can link it to any path.
    if kind in (SEGMENT, None):
        mode, links = stat.S_IMODE(found.st_mode), found.st_nlink
        if mode != 0o600 or links != (1 if d is None else 0):
            return f"the file has mode {mode:o} and {links} links; dlx made none such"
    if d is None or access & os.O_PATH:
        return ""
    reads = d.flags & _READ_ONLY
    if access & os.O_ACCMODE not in (
        (os.O_RDONLY, os.O_RDWR) if reads else (os.O_RDWR,)
    ):
        return _OTHER
    # First: until it is sealed, whoever has it may make it shorter.
    seals, size = seals_of(file), os.fstat(file.fileno()).st_size
    if kind == SEGMENT:
        needed = _FROZEN if d.flags & FROZEN else _SHAPED
        good = (
            seals is not None
            and seals & needed == needed
            and size == d.size
            and token_of(file, seals) == d.token
        )
    else:
        in_memory = seals is not None
        good = size >= d.size and in_memory == (kind == SHM) and not d.flags & FROZEN
    return "" if good else _OTHER


def checked(file: OpenFile, d: Described, is_own: bool = False) -> OpenFile:
    """Return a file, sent by somebody unless ``is_own``, if it is what ``d`` describes.

    It is closed otherwise.
    """
    try:
        reason = doubt(file, d, is_own)
    except OSError:  # It is no file that has these properties.
        reason = _OTHER
    if reason:
        file.close()
        raise BufferError(reason)
    return file


def _refused(d: Described, error: OSError) -> BufferError:
    """Return the reason why what a handle names could not be opened."""
    if d.kind == FILE:
        return BufferError(f"{os.fsdecode(d.path)!r} of the handle: {error.strerror}")
    if not isinstance(error, FileNotFoundError | PermissionError | ProcessLookupError):
        return lacking(error, "the memory of the handle")
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
        "the handle was closed, or no variable held it, before it was attached here; "
        "keep it until then"
    )


def located(d: Described) -> OpenFile:
    """Return a descriptor, for `os.O_PATH`, of what a handle names, or refuse it."""
    try:
        here = host(), namespace()
    except OSError as error:
        raise lacking(error, "a handle is found by /proc") from error
    if d.boot != here[0]:
        raise BufferError("the handle is of another host, or from before a restart")
    path = os.fsdecode(d.path)
    # O_PATH opens no device and no pipe, and nobody can exchange what it found.
    mode = os.O_PATH
    if d.kind == FILE:
        mode |= os.O_NOFOLLOW
    else:
        if d.namespace != here[1]:
            raise BufferError(
                "the handle is of another PID namespace, such as a container"
            )
        path = f"/proc/{d.pid}/fd/{d.file}"
    try:
        # A segment has its token in its name, whoever has the PID now.
        if d.kind == SHM and start(d.pid) != d.start:
            raise ProcessLookupError
        place = OpenFile.open(path, mode)
    except OSError as error:
        raise _refused(d, error) from error
    return checked(place, d, is_own=True)


def opened_at(place: OpenFile, d: Described) -> OpenFile:
    """Open what `located` has found, if it is what ``d`` describes."""
    try:
        file = reopened(place, os.O_RDONLY if d.flags & _READ_ONLY else os.O_RDWR)
    except OSError as error:
        raise lacking(error, "the memory of the handle") from error
    return checked(file, d, is_own=True)


def opened(d: Described) -> OpenFile:
    """Open what a handle names, or raise ``BufferError``."""
    with located(d) as place:
        return opened_at(place, d)
