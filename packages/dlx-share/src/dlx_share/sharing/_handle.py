"""`Handle`: memory that other processes attach, held until it is closed."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import ExitStack, suppress
from typing import Self
from weakref import WeakValueDictionary

from dlx._core import DType, LinkedFile, OpenFile
from dlx.pickling import _READ_ONLY

from ._form import HEAD, LONGEST, SEGMENT, Described, lacking, read, write
from ._mappings import Mapping
from ._names import publish
from ._segment import checked, opened, reopened

__all__ = ["Handle", "Lost", "open_handles", "received", "trusted"]

open_handles: WeakValueDictionary[tuple[int, int], Handle] = WeakValueDictionary()
"""For each inode one that was open when the last was made."""


_LENGTH = struct.Struct("<I")


class Handle:
    """Memory that other processes of this host can attach, held until it is closed.

    ``bytes(h)`` and pickles of it name this process and its file descriptor. A handle
    that has arrived in another process holds the memory, too. It ends by `close`, at
    the end of a ``with`` block or with its last reference; attached tensors stay valid.
    """

    __slots__ = (
        "__weakref__",
        "_described",
        "_link",
        "_mapping",
        "_owned",
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
        self,
        file: OpenFile,
        described: Described,
        is_copied: bool,
        other: Handle | None,
    ) -> None:
        self._owned, self._described, self.is_copied = file, described, is_copied
        self._mapping: Mapping | None = None
        self._link: LinkedFile | None = None
        known = other or open_handles.get(described.inode)
        if known is None or known._owned.closed:
            open_handles[described.inode] = self

    @classmethod
    def _of(
        cls,
        file: OpenFile,
        described: Described,
        is_copied: bool,
        other: Handle | None = None,
    ) -> Self:
        """Make a handle that owns a descriptor, perhaps beside an open one."""
        handle = cls.__new__(cls)
        handle._adopt(file, described, is_copied, other)
        return handle

    def _opened(self) -> OpenFile:
        """Return its descriptor, or raise if it is closed."""
        if self._owned.closed:
            raise BufferError("the handle is closed")
        return self._owned

    @property
    def _file(self) -> int:
        return self._opened().fileno()

    def _check(self, file: OpenFile) -> int:
        """Return the size of a descriptor of its file, or raise.

        Somebody may have closed the descriptors of others, whose numbers then are those
        of other files.
        """
        try:
            found = os.fstat(file.fileno())
            same = (found.st_dev, found.st_ino) == self._described.inode
            if same and not self._owned.closed:
                return found.st_size
        except (BufferError, OSError):
            pass
        raise BufferError("the handle is closed")

    def _check_usable(self) -> None:
        """Raise if it is closed, or its file is shorter by now than it says."""
        file, d = self._opened(), self._described
        if d.kind != SEGMENT and self._check(file) < d.size:
            raise BufferError(
                f"the file of the handle is shorter than its {d.size} bytes by now"
            )

    def _duplicate(self, readonly: bool) -> tuple[OpenFile, int]:
        """Return a descriptor of its file, and how many bytes that has.

        With ``readonly`` the descriptor cannot write. That somebody has closed those of
        others, whoever attaches a segment finds out.
        """
        file, d = self._opened(), self._described
        try:
            if readonly and not self.readonly:
                copied = reopened(file, os.O_RDONLY)
            else:
                copied = file.duplicate()
        except OSError as error:
            self._check(file)
            raise lacking(error, "another descriptor of the memory") from error
        if d.kind == SEGMENT and not self._owned.closed:
            return copied, d.size
        try:
            return copied, self._check(copied)
        except BufferError:
            copied.close()
            raise

    def _map(self, prot: int, flags: int) -> Mapping:
        """Map its memory once more."""
        file = self._opened()
        mapping = Mapping.of(file, self._described, prot, flags)
        self._check(file)
        return mapping

    def _name(self, name: str) -> None:
        """Give it a name, which it holds until it is closed."""
        self._link = publish(name, bytes(self))

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
        return write(self._described, self._file)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle the bytes; the handle that arrives has the memory open."""
        return _arrive, (bytes(self),)

    def __repr__(self) -> str:
        """Say what it holds."""
        if self._owned.closed:
            return "dlx_share.sharing.Handle(closed)"
        d = self._described
        what = f"{d.dtype}{list(d.shape)}, {d.size} bytes"
        return f"dlx_share.sharing.Handle({what}{', readonly' * self.readonly})"

    def close(self) -> None:
        """Let go of the memory here. Nobody can attach it by this handle any more."""
        if self._link:
            self._link.close()
        self._owned.close()
        self._mapping = None

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
        message = _LENGTH.pack(len(data)) + data
        with copied:
            self._check(copied)
            sent = socket.send_fds(sock, [message], [copied.fileno()])
        sock.sendall(message[sent:])

    @classmethod
    def recv(cls, sock: socket.socket, /, *, paths: bool = False) -> Self:
        """Receive what `send` sent.

        ``paths`` is that of `dlx.attach`. Raises ``BufferError`` if what arrives is no
        handle, and ``EOFError`` if the socket was closed before its end. The stream is
        of no use afterwards.
        """
        _check_socket(sock)
        head, files, truncated = received(sock, _LENGTH.size)
        with ExitStack() as stack:
            for file in files:
                stack.callback(file.close)
            head += _exactly(sock, _LENGTH.size - len(head))
            length = _LENGTH.unpack(head)[0]
            if not HEAD.size <= length <= LONGEST:
                raise BufferError("what arrived is no handle")
            data = _exactly(sock, length)
            if len(files) != 1 or truncated:
                raise BufferError("the handle has not arrived with one descriptor")
            described = trusted(data, paths)
            handle = cls._of(checked(files[0], described), described, False)
            stack.pop_all()
            return handle


class Lost(Handle):
    """A handle whose memory was gone when it arrived, which it says when it is used.

    Pools read results in a thread of their own, which an exception would end.
    """

    __slots__ = "_data", "_reason"

    def __init__(self, data: bytes, reason: str) -> None:
        """Note the bytes of the handle, and what to say."""
        self._data, self._reason = data, reason

    def __getattr__(self, name: str) -> object:
        """Raise for all that an open handle has."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise BufferError(self._reason)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle what has arrived."""
        return _arrive, (self._data,)

    def __repr__(self) -> str:
        """Say why it is lost."""
        return f"dlx_share.sharing.Handle(lost: {self._reason})"

    def close(self) -> None:
        """Do nothing: it holds nothing."""


def _arrive(data: bytes) -> Handle:
    """Open what a pickle names. Who wrote it can do more than name a file."""
    try:
        return Handle(data, paths=True)
    except BufferError as error:
        return Lost(data, str(error))


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


def received(sock: socket.socket, length: int) -> tuple[bytes, list[OpenFile], bool]:
    """Receive bytes, the descriptors beside them, and whether those are not all."""
    while True:
        # By a call that waits as the socket says: what it leaves is there afterwards.
        if not sock.recv(1, socket.MSG_PEEK):
            raise EOFError("the socket was closed before the end of a handle")
        with suppress(BlockingIOError):  # Another thread was faster.
            return OpenFile.received(sock.fileno(), length)


def _exactly(sock: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        if not (more := sock.recv(length - len(data))):
            raise EOFError("the socket was closed before the end of a handle")
        data += more
    return data
