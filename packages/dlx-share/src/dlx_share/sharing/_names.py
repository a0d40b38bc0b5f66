"""Names of shared memory: small files in /dev/shm, locked while their owner lives.

A file holds the bytes of a handle, and no elements. Whoever owns it holds an OFD lock
on it, which the kernel drops when the owner is killed.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from dlx._core import LinkedFile, OpenFile, end_links

from ._form import LONGEST, Described, read
from ._segment import doubt

__all__ = ["Entry", "entries", "lookup", "publish", "withdraw"]

_FOLDER = "/dev/shm"
_LONGEST = 200
_LOCK = struct.Struct("hhqqi")


def _prefix() -> str:
    return f"dlx-{os.geteuid()}-"


def _path(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name is {name!r}; expected a str")
    if not name or "/" in name or "\0" in name or len(os.fsencode(name)) > _LONGEST:
        raise ValueError(
            f"the name is {name!r}; expected 1 to {_LONGEST} bytes without '/'"
        )
    return f"{_FOLDER}/{_prefix()}{name}"


def _lock(file: OpenFile, command: int) -> bool:
    """Take or ask for a lock on all of a file; return whether it is free."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = fcntl.fcntl(file, command, asked)
    except (BlockingIOError, PermissionError):
        return False
    return command == fcntl.F_OFD_SETLK or _LOCK.unpack(answer[: _LOCK.size])[0] == (
        fcntl.F_UNLCK
    )


def _opened(path: str, mode: int) -> OpenFile:
    """Open a file that dlx has made for a name of this user, and nothing else."""
    file = OpenFile.open(path, mode | os.O_NOFOLLOW | os.O_NONBLOCK)
    if reason := doubt(file, None):
        file.close()
        raise PermissionError(errno.EPERM, reason, path)
    return file


def _remove(file: OpenFile, path: str) -> None:
    """Remove a name, if it still is that of this file."""
    try:
        if os.path.samestat(
            os.stat(path, follow_symlinks=False), os.fstat(file.fileno())
        ):
            os.unlink(path)
    except FileNotFoundError:
        pass


def withdraw(path: str) -> bool:
    """Remove a name whose owner is gone; return whether it was."""
    try:
        with _opened(path, os.O_RDWR) as file:
            # Who has the lock is the only one to remove it.
            if _lock(file, fcntl.F_OFD_SETLK):
                _remove(file, path)
                return True
    except OSError:
        pass
    return False


# A fork would hold the locks, too.
os.register_at_fork(after_in_child=end_links)
atexit.register(end_links)


def publish(name: str, data: bytes) -> LinkedFile:
    """Make a name for the bytes of a handle, which ends with what is returned.

    Raises ``FileExistsError`` if the name is in use.
    """
    path = _path(name)
    # Complete and locked before anybody can see it.
    linked = LinkedFile(path, data)
    while not linked.link():
        if not withdraw(path):
            linked.close()
            raise FileExistsError(errno.EEXIST, "the name is in use", name)
    return linked


def lookup(name: str) -> bytes:
    """Return the bytes of the handle that has a name, or raise ``BufferError``."""
    try:
        with _opened(_path(name), os.O_RDONLY) as file:
            return os.read(file.fileno(), LONGEST)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BufferError(f"shared memory named {name!r}: {reason}") from error


class Entry(NamedTuple):
    """A name of this user; ``described`` is None if its file is damaged."""

    name: str
    path: str
    is_held: bool
    described: Described | None


def entries() -> Iterator[Entry]:
    """Yield the names of this user."""
    prefix = _prefix()
    for found in sorted(os.listdir(_FOLDER)):
        if not found.startswith(prefix):
            continue
        path = f"{_FOLDER}/{found}"
        try:
            with _opened(path, os.O_RDWR) as file:
                held = not _lock(file, fcntl.F_OFD_GETLK)
                data = os.read(file.fileno(), LONGEST)
        except OSError:  # It is gone, or of another user.
            continue
        try:
            described = read(data)
        except BufferError:
            described = None
        yield Entry(found.removeprefix(prefix), path, held, described)
