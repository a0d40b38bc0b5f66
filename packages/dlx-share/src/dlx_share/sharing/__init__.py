"""One memory in several processes of a host: `dlx.share`, `dlx.attach` and `Handle`.

A segment is a sealed memfd. File descriptors and mappings keep it, and the kernel
counts both: a process that is killed leaves nothing behind. Linux only.
"""

from __future__ import annotations

import sys

if sys.platform != "linux":
    raise ImportError("dlx shares memory between processes on Linux only")

import fcntl
import mmap
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from dlx._core import (
    CopyRefused,
    Device,
    DType,
    OpenFile,
    Tensor,
    convert,
    from_buffer,
    from_dlpack,
)
from dlx.pickling import _PADDED, _READ_ONLY, _dense, _may_repeat

from ._form import FILE, FROZEN, SEGMENT, Described, lacking, read, span
from ._found import found, open_found
from ._handle import Handle, open_handles, trusted
from ._mappings import Mapping, covering, mapped, segment
from ._names import lookup
from ._segment import (
    SEAL_FUTURE_WRITE,
    TOKEN,
    checked,
    for_reading,
    inode_of,
    located,
    make,
    opened,
    opened_at,
    reopened,
    seals_of,
)

__all__ = ["Handle", "attach", "share"]

# For `dlx_share.mp`, whose descriptors arrive without a socket of the caller.
_read, _checked = read, checked

_HOST = Device("cpu")

_Make = Callable[[int, int], Mapping]
"""What maps a file that is open, with this protection and these flags."""


def _new(t: Tensor, readonly: bool) -> Handle:
    """Copy the elements of a tensor into a new segment."""
    raw, strides = _dense(t)
    size = max(len(raw), 1)  # nobody can map a file of no bytes
    file = make(size, raw)
    flags = _PADDED * t.is_padded
    if readonly:
        file = for_reading(file, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
        flags |= _READ_ONLY | FROZEN
    elif _may_repeat(t.shape, strides):
        file = for_reading(file)
        flags |= _READ_ONLY
    described = Described(
        *(SEGMENT, flags, TOKEN, inode_of(file), size, 0, len(raw)),
        *(t.dtype, t.shape, strides),
    )
    # No element of nothing was copied.
    return Handle._of(file, described, bool(len(raw)))


def _path_of(file: OpenFile) -> str:
    return os.readlink(f"/proc/self/fd/{file.fileno()}")


_NO_WRITERS = fcntl.F_SEAL_WRITE | SEAL_FUTURE_WRITE


def _enforced(file: OpenFile, inode: tuple[int, int]) -> bool:
    """Have the kernel refuse new writers of a segment; return whether it does."""
    try:
        if inode_of(file) != inode:  # Somebody has closed the descriptors of others.
            return False
        if not fcntl.fcntl(file, fcntl.F_GET_SEALS) & _NO_WRITERS:
            with reopened(file, os.O_RDWR) as writing:
                fcntl.fcntl(writing, fcntl.F_ADD_SEALS, SEAL_FUTURE_WRITE)
    except OSError:
        return False
    return True


def _of_mapping(t: Tensor, readonly: bool) -> Handle | str:
    """Return a handle to the memory that a tensor has, or in words what that is."""
    dtype, shape, strides = t.dtype, t.shape, t.strides
    (address, length), size = t.span, dtype.bits * dtype.lanes
    if not length:
        return ""
    if address % ((size & -size) // 8 or 1):
        return "memory that is not aligned to the elements"
    mapping, path = covering(address, length), ""
    if mapping is None:
        if isinstance(area := found(address, length), str):
            return area
        inode, offset, is_writable, path = area
    else:
        inode, is_writable = mapping.inode, mapping.is_writable
        offset = address - mapping.address + mapping.offset
    reads = readonly or t.readonly or not is_writable
    if not t.is_contiguous and _may_repeat(shape, strides):
        reads = True
    flags = _READ_ONLY * reads | _PADDED * t.is_padded
    at: tuple[OpenFile, int, int, bytes, bytes] | None = None
    known = open_handles.get(inode)
    if known is not None and (known._described.flags & _READ_ONLY) <= reads:
        d = known._described
        try:
            file, size = known._duplicate(reads)
            at = file, size, d.kind, d.token, d.path
            flags |= d.flags & FROZEN
        except (BufferError, OSError):  # It is closed, or of another user.
            pass
    if at is None:
        at = open_found(inode, path, not reads)
    # The inode of System V memory is its id, which may be that of a file of tmpfs.
    if path and at and at[1] != FILE and path != _path_of(at[0]):
        at[0].close()
        at = None
    if at is None:
        if path:
            return f"a mapping of {path!r}, which no path or descriptor leads to"
        return "memory of which this process has no open handle"
    file, size, kind, token, name = at
    if not reads and kind == SEGMENT and (seals_of(file) or 0) & _NO_WRITERS:
        # Who maps it anew may not write, although this process may.
        file.close()
        return _of_mapping(t, True)
    if readonly and not (kind == SEGMENT and _enforced(file, inode)):
        file.close()
        return "memory that the kernel would let others write to"
    if offset + length > size:
        file.close()
        return f"a mapping of {path!r} that is longer than the file"
    described = Described(
        kind, flags, token, inode, size, offset, length, dtype, shape, strides, name
    )
    handle = Handle._of(file, described, False, known)
    # What others have mapped they unmap or move, even while arrays are over it, and
    # something else is there: that is mapped anew.
    if not path:
        handle._mapping = mapping
    return handle


def share(
    x: object, copy: bool | None, readonly: bool, name: str | None = None
) -> Handle:
    """Implement `dlx.share`."""
    t = from_dlpack(x)
    if t.device != _HOST:
        raise BufferError(
            f"the tensor is on {t.device}; dlx shares memory of the host: share "
            't.to(device="cpu")'
        )
    try:
        handle = "" if copy else _of_mapping(t, readonly)
        if isinstance(handle, str):
            if copy is False and handle:
                raise CopyRefused(
                    f"copy=False, but this is {handle}; compute in memory of "
                    "dlx.empty(shape, dtype, shared=True), or share a copy"
                )
            handle = _new(t, readonly)
        if name is not None:
            try:
                handle._name(name)
            except BaseException:
                # Whoever has the exception would hold the memory.
                handle.close()
                raise
    except FileExistsError:
        raise
    except OSError as error:
        raise lacking(error, f"{t.span[1]} bytes cannot be shared") from error
    return handle


def _empty(shape: tuple[int, ...], dtype: DType, device: Device, like: Any) -> Any:
    """Implement `dlx.empty` with ``shared=True``, once its arguments are checked."""
    if device != "cpu":
        raise BufferError(f"device is {device}; dlx shares memory of the host")
    strides = tuple(_row_major(shape))
    length = span(shape, strides, dtype, 0)
    try:
        file = make(max(length, 1))
    except OSError as error:
        raise lacking(error, f"a segment of {length} bytes") from error
    described = Described(
        *(SEGMENT, 0, TOKEN, inode_of(file), max(length, 1), 0, length),
        *(dtype, shape, strides),
    )
    handle = Handle._of(file, described, False)
    t = _attached(described, None, handle._map)
    # `share` needs a descriptor as long as somebody has the memory.
    mapped[described.inode, True].owner = handle
    return t if like is None else convert(t, like, copy=False)


def _row_major(shape: tuple[int, ...]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return strides[::-1]


def _mapping(
    d: Described, mode: str | None, make: _Make, lent: Mapping | None
) -> Mapping:
    """Return a mapping in this process, or make one."""
    if mode == "cow":
        return make(mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE)
    writes = mode == "rw" or (mode is None and not d.flags & _READ_ONLY)
    key, known = (d.inode, writes), segment(d)
    for each in lent, mapped.get((d.inode, True)), mapped.get(key):
        # For "r" what cannot be written to; by default the memory itself. What bytes
        # say of a segment was compared with it when it was mapped.
        if (
            each
            and each.holds(d)
            and each.is_writable in (writes, mode != "r")
            and (each is lent or each.of_segment == known)
        ):
            return each
    made = make(mmap.PROT_READ | mmap.PROT_WRITE * writes, mmap.MAP_SHARED)
    first = mapped.setdefault(key, made)
    if not first.holds(d):
        mapped[key] = first = made
    return first


def _attached(
    d: Described, mode: str | None, make: _Make, lent: Mapping | None = None
) -> Tensor:
    readonly = mode == "r" or (mode is None and bool(d.flags & _READ_ONLY))
    try:
        return from_buffer(
            _mapping(d, mode, make, lent).memory(d),
            d.shape,
            d.dtype,
            strides=d.strides,
            copy=False,
            readonly=readonly,
            padded=bool(d.flags & _PADDED),
        )
    except ValueError as error:
        raise BufferError(f"the handle is damaged: {error}") from error


def attach(
    handle: Handle | bytes | str, like: Any, mode: str | None, paths: bool = False
) -> Any:
    """Implement `dlx.attach`."""
    if mode not in (None, "r", "rw", "cow"):
        raise ValueError(f"mode is {mode!r}; expected 'r', 'rw', 'cow' or None")
    if isinstance(handle, str):
        scheme, _, name = handle.partition(":")
        if scheme != "shm":
            raise ValueError(f"the name is {handle!r}; expected 'shm:NAME'")
        # Whoever may write to the file of a name is this user.
        handle, paths = lookup(name), True
    if isinstance(handle, Handle):
        handle._check_usable()  # What it names may be mapped still, though it is not.
        return _given(handle._described, like, mode, handle._map, handle._mapping)
    try:
        described = trusted(handle, paths)
    except TypeError:
        raise TypeError(
            f"the handle is {type(handle).__name__}; expected a dlx_share.Handle, "
            "its bytes, or 'shm:NAME'"
        ) from None
    if described.kind != SEGMENT:
        # Opened even if it is mapped, since it may be shorter than it was.
        with opened(described) as file:
            return _given(described, like, mode, partial(Mapping.of, file, described))
    with located(described) as place:
        return _given(described, like, mode, partial(_opened_at, place, described))


def _opened_at(place: OpenFile, d: Described, prot: int, flags: int) -> Mapping:
    """Open the segment that was located, and map it."""
    with opened_at(place, d) as file:
        return Mapping.of(file, d, prot, flags)


def _given(
    d: Described, like: Any, mode: str | None, make: _Make, lent: Mapping | None = None
) -> Any:
    """Return the tensor that ``d`` describes, in a mapping that is there or is made."""
    if mode == "rw" and d.flags & _READ_ONLY:
        raise BufferError("mode='rw', but the handle is read-only")
    t = _attached(d, mode, make, lent)
    if like is None:
        return t
    if mode is None and d.flags & FROZEN:
        try:
            return convert(t, like, copy=False)
        except CopyRefused:
            # Nobody else writes, so a private mapping is the same memory until then.
            t = _attached(d, "cow", make)
    if mode != "r":
        return convert(t, like)
    try:
        return convert(t, like, copy=False)
    except CopyRefused as error:
        raise CopyRefused(
            "mode='r' maps memory that no write may reach, and the library takes it as "
            "a copy only; pass mode='cow', or no mode"
        ) from error
