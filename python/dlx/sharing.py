"""One memory in several processes of a host: `dlx.share`, `dlx.attach` and `Handle`.

A segment is a sealed memfd. File descriptors and mappings keep it, and the kernel
counts both: a process that is killed leaves nothing behind. Linux only.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import sys
from typing import Any, NamedTuple, Self
from weakref import WeakSet, WeakValueDictionary, finalize

from ._core import CopyRefused, Tensor, convert, from_buffer, from_dlpack
from .pickling import _PADDED, _READ_ONLY, _dense, _repeats

if sys.platform != "linux":
    raise ImportError("dlx shares memory between processes on Linux only")

__all__ = ["Handle", "attach", "share"]

_MAGIC, _VERSION, _FD = b"DLXH", 1, 1
_FROZEN = 2  # No process can write to it, ever.
# Magic, version, kind, length, flags; boot, token of the process, PID namespace, PID,
# descriptor; start time, device, inode, size, offset; dtype, device type and id, ndim.
_HEAD = struct.Struct("<4sHHII16s16sQIiQQQQQBBHiiI")
_SHAPED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_TOKEN = os.urandom(16)


class _Described(NamedTuple):
    """What the bytes of a handle say, once checked."""

    flags: int
    boot: bytes
    token: bytes
    namespace: int
    pid: int
    file: int
    start: int
    inode: tuple[int, int]
    size: int
    offset: int
    dtype: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _read(data: bytes) -> _Described:
    """Check the bytes of a handle in full, before anything is opened."""
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise BufferError("these are not the bytes of a dlx.Handle")
    (
        _,
        version,
        kind,
        length,
        flags,
        boot,
        token,
        namespace,
        pid,
        file,
        start,
        *rest,
    ) = _HEAD.unpack_from(data)
    device, inode, size, offset, code, bits, lanes, kind_of_device, _, ndim = rest
    if version != _VERSION:
        raise BufferError(
            f"the handle has version {version}; this dlx reads version {_VERSION}"
        )
    if kind != _FD or kind_of_device != 1:
        raise BufferError(f"the handle is of kind {kind}, which this dlx cannot attach")
    if length != len(data) or ndim > 64 or length < _HEAD.size + 16 * ndim:
        raise BufferError(
            f"the handle has {len(data)} bytes, but says {length} and {ndim} dimensions"
        )
    dimensions = struct.unpack_from(f"<{2 * ndim}q", data, _HEAD.size)
    return _Described(
        flags & (_READ_ONLY | _PADDED | _FROZEN),
        boot,
        token,
        namespace,
        pid,
        file,
        start,
        (device, inode),
        size,
        offset,
        (code, bits, lanes),
        dimensions[:ndim],
        dimensions[ndim:],
    )


def _boot() -> bytes:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return bytes.fromhex(file.read().strip().replace("-", ""))


def _start(pid: int) -> int:
    """When a process started, in ticks since boot: a PID may be used again."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _inode(file: int | str) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino


def _open(d: _Described) -> int:
    """Open the segment that another process has open, or raise ``BufferError``."""
    if d.boot != _boot():
        raise BufferError("the handle is of another host, or from before a restart")
    if d.namespace != os.stat("/proc/self/ns/pid").st_ino:
        raise BufferError("the handle is of another PID namespace, such as a container")
    path = f"/proc/{d.pid}/fd/{d.file}"
    try:
        if _start(d.pid) != d.start:
            raise ProcessLookupError
        # Before it is opened: opening a device or a pipe may do something.
        if os.readlink(path) != f"/memfd:dlx-{d.token.hex()} (deleted)":
            raise FileNotFoundError
        mode = os.O_RDONLY if d.flags & _READ_ONLY else os.O_RDWR
        file = os.open(path, mode | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError as error:
        raise BufferError(
            f"process {d.pid} is of another user; send the handle through a socket"
        ) from error
    except (FileNotFoundError, ProcessLookupError) as error:
        try:
            gone = _start(d.pid) != d.start
        except (FileNotFoundError, ProcessLookupError):
            gone = True
        raise BufferError(
            f"process {d.pid}, which shared the memory, is gone"
            if gone
            else "the handle was closed; keep it, or send it pickled to one that does"
        ) from error
    if os.fstat(file).st_uid != os.geteuid():
        os.close(file)
        raise BufferError("the memory is of another user")
    return _checked(file, d)


def _checked(file: int, d: _Described) -> int:
    """Return ``file`` if it is the segment that ``d`` describes; else close it."""
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
        found = os.fstat(file)
        if (
            seals & _SHAPED == _SHAPED
            and (found.st_dev, found.st_ino) == d.inode
            and found.st_size == d.size
            and (not d.flags & _FROZEN or seals & fcntl.F_SEAL_WRITE)
        ):
            return file
    except OSError:
        pass
    os.close(file)
    raise BufferError("the handle is of memory that is gone, or that is not dlx's")


class _Mapping:
    """A mapping of a segment, which holds no file descriptor."""

    def __init__(self, file: int, size: int, prot: int, flags: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t),
            *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
        )
        libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
        address = libc.mmap(None, size, prot, flags, file, 0)
        if address == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.address, self.size, self.inode = address, size, _inode(file)
        self.is_private = flags == mmap.MAP_PRIVATE
        finalize(self, libc.munmap, address, size).atexit = False

    def memory(self) -> Any:
        """Return a buffer over it that keeps it."""
        memory: Any = (ctypes.c_ubyte * self.size).from_address(self.address)
        memory.mapping = self
        return memory


# The mappings and the handles of this process.
_mapped: WeakValueDictionary[tuple[tuple[int, int], int, int], _Mapping]
_mapped = WeakValueDictionary()
_handles: WeakSet[Handle] = WeakSet()


class Handle:
    """Memory that other processes of this host can attach, held until it is closed.

    ``bytes(h)`` and pickles of it name this process and its file descriptor. A handle
    that has arrived in another process holds the memory, too. It ends by `close`, at
    the end of a ``with`` block or with its last reference; attached tensors stay valid.
    """

    __slots__ = ("__weakref__", "_described", "_end", "_file", "is_copied")

    is_copied: bool
    """Whether the memory is a copy made for this handle."""

    def __init__(self, data: bytes, /) -> None:
        """Open the memory that ``bytes`` of a handle name.

        Raises ``BufferError`` if it is gone or not what they say.
        """
        described = _read(bytes(data))
        self._adopt(_open(described), described, False)

    def _adopt(self, file: int, described: _Described, is_copied: bool) -> None:
        self._file, self._described, self.is_copied = file, described, is_copied
        self._end = finalize(self, os.close, file)
        self._end.atexit = False
        _handles.add(self)

    @classmethod
    def _of(cls, file: int, described: _Described, is_copied: bool) -> Self:
        handle = cls.__new__(cls)
        handle._adopt(file, described, is_copied)
        return handle

    def _fileno(self) -> int:
        if not self._end.alive:
            raise BufferError("the handle is closed")
        return self._file

    @property
    def readonly(self) -> bool:
        """Whether nobody can write through it."""
        return bool(self._described.flags & _READ_ONLY)

    def __bytes__(self) -> bytes:
        """Return what other processes attach, while this one has it open."""
        d, file = self._described, self._fileno()
        link = os.readlink(f"/proc/self/fd/{file}")
        token = bytes.fromhex(link.removeprefix("/memfd:dlx-").partition(" ")[0])
        pid, ndim = os.getpid(), len(d.shape)
        head = _HEAD.pack(
            *(_MAGIC, _VERSION, _FD, _HEAD.size + 16 * ndim, d.flags),
            *(_boot(), token, os.stat("/proc/self/ns/pid").st_ino, pid, file),
            *(_start(pid), *d.inode, d.size, d.offset, *d.dtype, 1, 0, ndim),
        )
        return head + struct.pack(f"<{2 * ndim}q", *d.shape, *d.strides)

    def __reduce__(self) -> tuple[type[Handle], tuple[bytes]]:
        """Pickle the bytes; the handle that arrives has the memory open."""
        return Handle, (bytes(self),)

    def __repr__(self) -> str:
        """Say what it holds."""
        if not self._end.alive:
            return "dlx.Handle(closed)"
        d = self._described
        return f"dlx.Handle(shape={d.shape}, bytes={d.size}, readonly={self.readonly})"

    def close(self) -> None:
        """Let go of the memory here. Nobody can attach it by this handle any more."""
        self._end()

    def __enter__(self) -> Self:
        """Return the handle."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def send(self, sock: socket.socket, /) -> None:
        """Send it through a Unix socket, also to another user or container."""
        data = bytes(self)
        socket.send_fds(sock, [struct.pack("<I", len(data))], [self._fileno()])
        sock.sendall(data)

    @classmethod
    def recv(cls, sock: socket.socket, /) -> Self:
        """Receive what `send` sent.

        Raises ``BufferError`` if that is no handle, and ``EOFError`` at the end.
        """
        head, files, _, _ = socket.recv_fds(sock, 4, 1)
        try:
            data = head
            length = struct.unpack("<I", head)[0] if len(head) == 4 else 0
            if not _HEAD.size <= length <= _HEAD.size + 16 * 64:
                if not head:
                    raise EOFError("the socket was closed")
                raise BufferError("what arrived is no handle")
            data = b""
            while len(data) < length:
                if not (more := sock.recv(length - len(data))):
                    raise EOFError("the socket was closed")
                data += more
            described = _read(data)
            if len(files) != 1:
                raise BufferError("the handle has arrived without its memory")
            return cls._of(_checked(files.pop(), described), described, False)
        finally:
            for file in files:
                os.close(file)


def _segment_of(t: Tensor) -> tuple[Handle, int] | None:
    """Find an open handle to the memory of ``t``, and the offset of its span."""
    address, length = t.span
    for mapping in list(_mapped.values()):
        inside = mapping.address <= address <= mapping.address + mapping.size - length
        if inside and not mapping.is_private and length:
            for handle in list(_handles):
                if handle._end.alive and handle._described.inode == mapping.inode:
                    return handle, address - mapping.address
    return None


def _tensor_fields(t: Tensor) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    return (t.dtype.code, t.dtype.bits, t.dtype.lanes), t.shape


def _segment(raw: memoryview, frozen: bool) -> int:
    """Make a sealed memfd of these bytes."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    file = os.memfd_create(f"dlx-{_TOKEN.hex()}", flags)
    try:
        os.fchmod(file, 0o600)
        os.ftruncate(file, max(len(raw), 1))
        done = 0
        while done < len(raw):
            done += os.pwrite(file, raw[done:], done)
        write = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL if frozen else 0
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SHAPED | write)
    except BaseException:
        os.close(file)
        raise
    return file


def share(x: object, *, copy: bool | None, readonly: bool) -> Handle:
    """Implement `dlx.share`."""
    t = from_dlpack(x)
    if t.device != "cpu":
        raise BufferError(
            f"the tensor is on {t.device}; dlx shares memory of the host: share "
            't.to(device="cpu")'
        )
    found = None if copy or readonly else _segment_of(t)
    dtype, shape = _tensor_fields(t)
    if found is not None:
        handle, offset = found
        d = handle._described
        flags = d.flags & (_READ_ONLY | _FROZEN) | _PADDED * t.is_padded
        if t.readonly:
            flags |= _READ_ONLY
        d = d._replace(
            flags=flags, offset=offset, dtype=dtype, shape=shape, strides=t.strides
        )
        return Handle._of(os.dup(handle._fileno()), d, False)
    if copy is False:
        raise CopyRefused(
            "copy=False, but the memory is not that of an open handle of dlx; share a "
            "copy, h, and compute in dlx.attach(h)"
        )
    raw, strides = _dense(t)
    file = _segment(raw, readonly)
    flags = (_READ_ONLY | _FROZEN if readonly else 0) | _PADDED * t.is_padded
    if _repeats(t.shape, strides):
        flags |= _READ_ONLY
    size = max(len(raw), 1)
    described = _Described(
        *(flags, b"", b"", 0, 0, 0, 0, _inode(file), size, 0, dtype, shape, strides)
    )
    return Handle._of(file, described, True)


def _map(handle: Handle, mode: str) -> Tensor:
    """Map the memory of a handle, or take a mapping that is there."""
    d, file = handle._described, handle._fileno()
    prot, flags = mmap.PROT_READ, mmap.MAP_SHARED
    if mode != "r":
        prot |= mmap.PROT_WRITE
    if mode == "cow":
        mapping = _Mapping(file, d.size, prot, mmap.MAP_PRIVATE)
    else:
        found = _mapped.get((d.inode, prot, flags))
        mapping = found or _Mapping(file, d.size, prot, flags)
        _mapped[d.inode, prot, flags] = mapping
    try:
        return from_buffer(
            memoryview(mapping.memory())[d.offset :],
            d.shape,
            d.dtype,
            strides=d.strides,
            readonly=mode == "r",
            padded=bool(d.flags & _PADDED),
        )
    except ValueError as error:
        raise BufferError(f"the handle is damaged: {error}") from error


def attach(handle: Handle | bytes, *, like: Any, mode: str | None) -> Any:
    """Implement `dlx.attach`."""
    if mode not in (None, "r", "rw", "cow"):
        raise ValueError(f"mode is {mode!r}; expected 'r', 'rw', 'cow' or None")
    if not isinstance(handle, Handle):
        with Handle(handle) as handle:
            return attach(handle, like=like, mode=mode)
    if mode == "rw" and handle.readonly:
        raise BufferError("mode='rw', but the handle is read-only")
    t = _map(handle, mode or ("r" if handle.readonly else "rw"))
    if like is None:
        return t
    if mode is None and handle._described.flags & _FROZEN:
        try:
            return convert(t, like, copy=False)
        except CopyRefused:
            # Nobody else writes, so a private mapping is the same memory until then.
            t = _map(handle, "cow")
    return convert(t, like, copy=False if mode == "r" else None)
