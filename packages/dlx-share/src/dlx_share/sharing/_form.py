"""The bytes of a handle: written, and checked in full before anything is opened."""

from __future__ import annotations

import errno
import os
import struct
from functools import cache
from typing import NamedTuple

from dlx._core import DType
from dlx.pickling import _PADDED, _READ_ONLY

__all__ = [
    "FILE",
    "FROZEN",
    "HEAD",
    "LONGEST",
    "SEGMENT",
    "SHM",
    "Described",
    "host",
    "lacking",
    "namespace",
    "read",
    "span",
    "start",
    "write",
]

SEGMENT, FILE, SHM = _KINDS = 1, 2, 3
"""Kinds of memory: a sealed memfd of dlx; a file; another file of tmpfs."""
FROZEN = 2
"""A flag: no process can write to it, ever. Others are those of pickles."""
_FLAGS = _READ_ONLY | _PADDED | FROZEN
_MAGIC, _VERSION = b"DLXH", 1
# Magic, version, kind, length, flags; boot, token of the process, PID namespace, PID,
# descriptor; start time, device, inode, size, offset; dtype, device type and id, ndim.
HEAD = struct.Struct("<4sHHII16s16sQIiQQQQQBBHiiI")
_NDIM, _PATH = 64, 4096
_DIMENSIONS = [struct.Struct(f"<{2 * ndim}q") for ndim in range(_NDIM + 1)]
_SIZE = HEAD.size
LONGEST = _SIZE + 16 * _NDIM + 4 + _PATH


class Described(NamedTuple):
    """What the bytes of a handle say; offset, length and sizes count bytes."""

    kind: int
    flags: int
    token: bytes
    inode: tuple[int, int]
    size: int
    offset: int
    length: int
    """From the first to the last byte that holds an element."""
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    path: bytes = b""
    # Where it is open.
    boot: bytes = b""
    namespace: int = 0
    pid: int = 0
    file: int = 0
    start: int = 0


def span(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    flags: int,
) -> int:
    """Return the bytes between the lowest and the highest element, both included."""
    if 0 in shape:
        return 0
    step = dtype.bits * dtype.lanes
    if flags & _PADDED and dtype.bits < 8:
        step = -(-step // 8) * 8
    low, high = 0, 1
    for extent, stride in zip(shape, strides, strict=True):
        if stride > 0:
            high += (extent - 1) * stride
        else:
            low += (extent - 1) * stride
    # In bits from the first element, which begins at a byte.
    return -(-step * high // 8) - step * low // 8


def lacking(error: OSError, what: str) -> BufferError:
    """Say of something that cannot be done what the system lacks for it."""
    reason = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        reason += "; close some files, or raise the limit (ulimit -n)"
    elif not os.path.isdir("/proc/self"):
        reason += "; mount /proc"
    return BufferError(f"{what}: {reason}")


@cache
def host() -> bytes:
    """Return the id of this boot of this host."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return bytes.fromhex(file.read().strip().replace("-", ""))


@cache
def namespace() -> int:
    """Return the PID namespace of this process, which never changes."""
    return os.stat("/proc/self/ns/pid").st_ino


def start(pid: int) -> int:
    """Return when a process started, in ticks since boot: a PID may be used again."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return int(file.read().rpartition(b")")[2].split()[19])


_start = cache(start)
# A child may have the PID that a process before had.
for _cached in _start, namespace:
    os.register_at_fork(after_in_child=_cached.cache_clear)


def read(data: bytes) -> Described:
    """Check the bytes of a handle in full, before anything is opened.

    Raises ``BufferError`` if they are damaged, or of a version or kind not known here.
    """
    if len(data) < _SIZE or data[:4] != _MAGIC:
        raise BufferError("these are not the bytes of a dlx_share.sharing.Handle")
    fields = HEAD.unpack_from(data)
    _, version, kind, length, flags, boot, token, space, pid = fields[:9]
    file, started, device, inode, size, offset, code, bits, lanes = fields[9:18]
    kind_of_device, _, ndim = fields[18:]
    if version != _VERSION:
        raise BufferError(
            f"the handle has version {version}; this dlx reads version {_VERSION}"
        )
    if kind not in _KINDS or kind_of_device != 1:
        raise BufferError(f"the handle is of kind {kind}, which this dlx cannot attach")
    end = _SIZE + 16 * ndim
    if length != len(data) or ndim > _NDIM or length < end:
        raise BufferError(
            f"the handle has {len(data)} bytes, but says {length} and {ndim} dimensions"
        )
    dimensions = _DIMENSIONS[ndim].unpack_from(data, _SIZE)
    shape, strides = dimensions[:ndim], dimensions[ndim:]
    path = b""
    if kind == FILE:
        path = data[end + 4 : end + 4 + int.from_bytes(data[end : end + 4], "little")]
        if not path.startswith(b"/") or b"\0" in path:
            raise BufferError("the handle is of a file, but has no path")
    try:
        dtype = DType((code, bits, lanes))
    except ValueError as error:
        raise BufferError(f"the handle is damaged: {error}") from error
    flags &= _FLAGS
    length = span(shape, strides, dtype, flags)
    if min(shape, default=0) < 0 or offset + length > size or not 0 < size < 1 << 63:
        raise BufferError(
            f"the handle says {size} bytes, but elements of {length} bytes at {offset}"
        )
    fields = kind, flags, token, (device, inode), size, offset, length, dtype
    return Described(
        *fields, *(shape, strides, path), *(boot, space, pid, file, started)
    )


def write(d: Described, file: int) -> bytes:
    """Return the bytes that name descriptor ``file`` of this process."""
    pid, ndim, dtype = os.getpid(), len(d.shape), d.dtype
    try:
        place = host(), d.token, namespace(), pid, file, _start(pid)
    except OSError as error:
        raise lacking(error, "a handle names its process, by /proc") from error
    tail = struct.pack(f"<{2 * ndim}q", *d.shape, *d.strides)
    if d.kind == FILE:
        tail += len(d.path).to_bytes(4, "little") + d.path
    head = HEAD.pack(
        *(_MAGIC, _VERSION, d.kind, HEAD.size + len(tail), d.flags),
        *(*place, *d.inode),
        *(d.size, d.offset, dtype.code, dtype.bits, dtype.lanes, 1, 0, ndim),
    )
    return head + tail
