"""`Handle`: memory that other processes attach, held until it is closed."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Self
from weakref import WeakValueDictionary, finalize

from dlx._core import DType
from dlx.pickling import _READ_ONLY

from ._form import HEAD, LONGEST, SEGMENT, Described, read, write
from ._mappings import Mapping
from ._names import publish, unpublish
from ._segment import checked, opened, reopened

__all__ = ["Handle", "open_handles", "trusted"]

open_handles: WeakValueDictionary[tuple[int, int], Handle] = WeakValueDictionary()
"""For each inode one that was open when the last was made."""


_INT = struct.Struct("i")


class Handle:
    """Memory that other processes of this host can attach, held until it is closed.

    ``bytes(h)`` and pickles of it name this process and its file descriptor. A handle
    that has arrived in another process holds the memory, too. It ends by `close`, at
    the end of a ``with`` block or with its last reference; attached tensors stay valid.
    """

    __slots__ = (
        "__weakref__",
        "_described",
        "_file",
        "_mapping",
        "_owned",
        "_unname",
        "is_copied",
    )

    is_copied: bool
    """Whether the memory is a copy made for this handle."""

    def __init__(self, data: bytes, /, *, paths: bool = False) -> None:
        """Open the memory that ``bytes`` of a handle name.

        Memory that dlx has not made is a file, which bytes could name without having
        it; it can be truncated. It is taken with ``paths=True`` only: say so if you
        trust the sender.

        Raises ``BufferError`` if the memory is gone or not what the bytes say.
        """
        described = trusted(data, paths)
        self._adopt(opened(described), described, False, None)

    def _adopt(
        self, file: int, described: Described, is_copied: bool, other: Handle | None
    ) -> None:
        self._file, self._described, self.is_copied = file, described, is_copied
        self._mapping: Mapping | None = None
        self._unname: finalize[..., Handle] | None = None
        # The descriptor, until one thread takes it out to close it.
        self._owned = [file]
        known = other or open_handles.get(described.inode)
        if known is None or not known._owned:
            open_handles[described.inode] = self

    @classmethod
    def _of(
        cls,
        file: int,
        described: Described,
        is_copied: bool,
        other: Handle | None = None,
    ) -> Self:
        """Make a handle that owns a descriptor, perhaps beside an open one."""
        handle = cls.__new__(cls)
        handle._adopt(file, described, is_copied, other)
        return handle

    def _fileno(self) -> int:
        if not self._owned:
            raise BufferError("the handle is closed")
        return self._file

    def _check(self, file: int) -> int:
        """Return the size of a file, which has been its own until now, or raise.

        Closed meanwhile by another thread, the number may have been another file's; and
        somebody may have closed the descriptors of others.
        """
        try:
            found = os.fstat(file)
            same = (found.st_dev, found.st_ino) == self._described.inode
            if same and self._owned:
                return found.st_size
        except OSError:
            pass
        raise BufferError("the handle is closed")

    def _check_usable(self) -> None:
        """Raise if it is closed, or its file is shorter by now than it says."""
        file, d = self._fileno(), self._described
        if d.kind != SEGMENT and self._check(file) < d.size:
            raise BufferError(
                f"the file of the handle is shorter than its {d.size} bytes by now"
            )

    def _duplicate(self, readonly: bool) -> tuple[int, int]:
        """Return a descriptor of its file, and how many bytes that has.

        With ``readonly`` the descriptor cannot write. That somebody has closed those of
        others, whoever attaches a segment finds out.
        """
        if not self._owned:
            raise BufferError("the handle is closed")
        file, d = self._file, self._described
        try:
            if readonly and not self.readonly:
                copied = reopened(file, os.O_RDONLY)
            else:
                copied = os.dup(file)
        except OSError:
            self._check(file)
            raise
        if d.kind == SEGMENT and self._owned:
            return copied, d.size
        try:
            return copied, self._check(copied)
        except BufferError:
            os.close(copied)
            raise

    def _map(self, prot: int, flags: int) -> Mapping:
        """Map its memory once more."""
        file = self._fileno()
        mapping = Mapping.of(file, self._described, prot, flags)
        self._check(file)
        return mapping

    def _name(self, name: str) -> None:
        """Give it a name, which it holds until it is closed."""
        self._unname = finalize(self, unpublish, *publish(name, bytes(self)))

    @property
    def readonly(self) -> bool:
        """Whether nobody can write through it."""
        return bool(self._described.flags & _READ_ONLY)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor, in elements."""
        return self._described.shape

    @property
    def dtype(self) -> DType:
        """Type of its elements."""
        return self._described.dtype

    def __bytes__(self) -> bytes:
        """Return what other processes attach, while this one has it open."""
        return write(self._described, self._fileno())

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        """Pickle the bytes; the handle that arrives has the memory open."""
        return _arrive, (bytes(self),)

    def __repr__(self) -> str:
        """Say what it holds."""
        if not self._owned:
            return "dlx_share.sharing.Handle(closed)"
        d = self._described
        what = f"{d.dtype}{list(d.shape)}, {d.size} bytes"
        return f"dlx_share.sharing.Handle({what}{', readonly' * self.readonly})"

    def close(self) -> None:
        """Let go of the memory here. Nobody can attach it by this handle any more."""
        if self._unname:
            self._unname()
        self._end()
        self._mapping = None

    # An argument: when the interpreter ends, names of modules may be gone.
    def _end(self, close: Callable[[int], None] = os.close) -> None:
        """Close its descriptor, once."""
        try:
            file = self._owned.pop()
        except (AttributeError, IndexError):  # It has never had one, or no longer.
            return
        close(file)

    __del__ = _end

    def __enter__(self) -> Self:
        """Return the handle."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def send(self, sock: socket.socket, /) -> None:
        """Send it through a connected Unix socket, also to another user or container.

        The socket is a stream (``SOCK_STREAM``) that blocks.
        """
        _check_socket(sock)
        data, (copied, _) = bytes(self), self._duplicate(False)
        try:
            self._check(copied)
            message = struct.pack("<I", len(data)) + data
            sent = socket.send_fds(sock, [message], [copied])
        finally:
            os.close(copied)
        sock.sendall(message[sent:])

    @classmethod
    def recv(cls, sock: socket.socket, /, *, paths: bool = False) -> Self:
        """Receive what `send` sent.

        ``paths`` is that of `dlx.attach`. Raises ``BufferError`` if what arrives is no
        handle, and ``EOFError`` if the socket was closed before its end. The stream is
        of no use afterwards.
        """
        _check_socket(sock)
        # `socket.recv_fds` would ignore the flag.
        head, sent, flags, _ = sock.recvmsg(
            4, socket.CMSG_LEN(_INT.size), socket.MSG_CMSG_CLOEXEC
        )
        files = [
            file
            for level, kind, data in sent
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            for (file,) in _INT.iter_unpack(data)
        ]
        try:
            head += _exactly(sock, 4 - len(head))
            length = struct.unpack("<I", head)[0]
            if not HEAD.size <= length <= LONGEST:
                raise BufferError("what arrived is no handle")
            data = _exactly(sock, length)
            if len(files) != 1 or flags & socket.MSG_CTRUNC:
                raise BufferError("the handle has not arrived with one descriptor")
            described = trusted(data, paths)
            return cls._of(checked(files.pop(), described), described, False)
        finally:
            for file in files:
                os.close(file)


def _arrive(data: bytes) -> Handle:
    """Open what a pickle names. Who wrote it can do more than name a file."""
    return Handle(data, paths=True)


def trusted(data: bytes, paths: bool) -> Described:
    """Read the bytes of a handle; refuse those of a file unless ``paths``."""
    described = read(bytes(memoryview(data)))
    if described.kind != SEGMENT and not paths:
        raise BufferError(
            "the handle is of a file that dlx has not made and others can truncate; "
            "if you trust the sender, pass paths=True"
        )
    return described


def _check_socket(sock: socket.socket) -> None:
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        raise ValueError("the socket is not a stream of AF_UNIX")


def _exactly(sock: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        if not (more := sock.recv(length - len(data))):
            raise EOFError("the socket was closed before the end of a handle")
        data += more
    return data
