"""Names of shared memory: small files in /dev/shm, locked while their owner lives.

A file holds the bytes of a handle, and no elements. Whoever owns it holds an OFD lock
on it, which the kernel drops when the owner is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ._form import LONGEST, Described, read

__all__ = ["Entry", "entries", "lookup", "publish", "unpublish", "withdraw"]

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


def _lock(file: int, command: int) -> bool:
    """Take or ask for a lock on all of a file; return whether it is free."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = fcntl.fcntl(file, command, asked)
    except (BlockingIOError, PermissionError):
        return False
    return command == fcntl.F_OFD_SETLK or _LOCK.unpack(answer[: _LOCK.size])[0] == (
        fcntl.F_UNLCK
    )


@contextmanager
def _opened(path: str, mode: int) -> Iterator[int]:
    """Open a file of this user, and nothing else."""
    file = os.open(path, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(file)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{path} is of another user")
        yield file
    finally:
        os.close(file)


def _remove(file: int, path: str) -> None:
    """Remove a name, if it still is that of this file."""
    try:
        if os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file)):
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


# The locked files of this process. A fork would hold the locks, too.
_held: dict[object, int] = {}


def _release_in_child() -> None:
    while _held:
        os.close(_held.popitem()[1])


os.register_at_fork(after_in_child=_release_in_child)


def publish(name: str, data: bytes) -> tuple[object, str]:
    """Make a name for the bytes of a handle; return what `unpublish` takes.

    Raises ``FileExistsError`` if the name is in use.
    """
    path = _path(name)
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    file = os.open(_FOLDER, flags, 0o600)
    # Before it is locked: a fork meanwhile would hold the lock.
    key = object()
    _held[key] = file
    try:
        while data:
            data = data[os.write(file, data) :]
        _lock(file, fcntl.F_OFD_SETLK)
        # Complete and locked before anybody can see it.
        while True:
            try:
                # With a `dir_fd`, though not needed here, Python calls linkat.
                os.link(f"/proc/self/fd/{file}", path, src_dir_fd=file)
                break
            except FileExistsError:
                if not withdraw(path):
                    raise FileExistsError(
                        errno.EEXIST, "the name is in use", name
                    ) from None
    except BaseException:
        del _held[key]
        os.close(file)
        raise
    return key, path


def unpublish(key: object, path: str) -> None:
    """Remove a name, except in a fork of the process that made it."""
    file = _held.pop(key, None)
    if file is not None:
        _remove(file, path)
        os.close(file)


def lookup(name: str) -> bytes:
    """Return the bytes of the handle that has a name, or raise ``BufferError``."""
    try:
        with _opened(_path(name), os.O_RDONLY) as file:
            return os.read(file, LONGEST)
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
                data = os.read(file, LONGEST)
        except OSError:  # It is gone, or of another user.
            continue
        try:
            described = read(data)
        except BufferError:
            described = None
        yield Entry(found.removeprefix(prefix), path, held, described)
