"""Reading what a target exported: the fields of a struct, and its elements."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from dlx_check.conformance import structs
from dlx_check.conformance.probe import unpacked
from dlx_check.conformance.records import Struct
from dlx_check.conformance.structs import PADDED, USED, VERSIONED
from dlx_check.memory import read

__all__ = ["fields_of", "first_of", "mapped", "readable"]


def readable(address: int) -> bool:
    """Return whether a byte can be read; the kernel looks, so nothing crashes."""
    return read(address, 1) is not None


def mapped(address: int) -> bool | None:
    """Return whether an address is in a file's mapping, so static; None if unknown."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            lines = maps.read().splitlines()
    except OSError:
        return None
    for line in lines:
        ends, _, _, _, _, *path = line.split(maxsplit=5)
        start, end = (int(part, 16) for part in ends.split("-"))
        if start <= address < end:
            return bool(path) and not path[0].startswith("[")
    return False


def first_of(tensor: Any) -> int:
    """Return the address of the first element of a `DLTensor`."""
    return int((tensor.data or 0) + tensor.byte_offset)


def _strides(tensor: Any) -> list[int]:
    """Return the strides of a tensor; NULL means row-major ones."""
    if tensor.strides and tensor.ndim:
        return list(tensor.strides[: tensor.ndim])
    return [*structs.row_major(tensor.shape[: tensor.ndim] if tensor.ndim else [])]


def elements(tensor: Any, item: int, strides: list[int]) -> bytes | None:
    """Return the elements of a tensor on the host, row-major; None if unreadable."""
    shape = tensor.shape[: tensor.ndim] if tensor.ndim else []
    if not all(shape):
        return b""
    first = first_of(tensor)
    ends = [(n - 1) * s * item for n, s in zip(shape, strides, strict=True)]
    low = first + sum(min(0, end) for end in ends)
    high = first + sum(max(0, end) for end in ends) + item
    if high - low > 1 << 28 or not all(map(readable, (low, high - 1))):
        return None
    memory = (ctypes.c_uint8 * (high - low)).from_address(low)
    start = np.frombuffer(memory, np.uint8)[first - low :]
    steps = (*(s * item for s in strides), 1)
    return np.lib.stride_tricks.as_strided(start, (*shape, item), steps).tobytes()


def _counted(tensor: Any, item: int, expected: bytes) -> str:
    """Say what strides count, if others give the elements that are expected."""
    own = _strides(tensor)
    fewer = [stride // item for stride in own]
    in_bytes = fewer if [stride * item for stride in fewer] == own else own
    row_major = [*structs.row_major(tensor.shape[: tensor.ndim])]
    for counted, strides in (("bytes", in_bytes), ("something else", row_major)):
        if strides != own and elements(tensor, item, strides) == expected:
            return counted
    return ""


def packed_elements(tensor: Any, bits: int) -> bytes | None:
    """Return packed elements, one in each byte; None if unreadable, or not compact."""
    shape = tensor.shape[: tensor.ndim] if tensor.ndim else []
    if not all(shape):
        return b""
    size = (math.prod(shape) * bits + 7) // 8
    first = first_of(tensor)
    compact = not tensor.strides or tuple(
        tensor.strides[: tensor.ndim]
    ) == structs.row_major(shape)
    if not compact or not all(map(readable, (first, first + size - 1))):
        return None
    return unpacked(ctypes.string_at(first, size), bits, math.prod(shape))


def fields_of(managed: Any, name: str, expected: bytes | None) -> Struct:
    """Return the fields of a managed tensor as a record has them."""
    versioned = name.removeprefix(USED) == VERSIONED
    tensor = managed.dl_tensor if hasattr(managed, "dl_tensor") else managed
    rank = max(0, min(tensor.ndim, 64))
    null = [
        field for field in ("data", "shape", "strides") if not getattr(tensor, field)
    ]
    if hasattr(managed, "deleter") and not managed.deleter:
        null.append("deleter")
    dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    sound = tensor.device.device_type == 1 and (tensor.shape or not rank)
    found, bits, counts = None, dtype[1] * dtype[2], ""
    if sound and 0 < bits < 8 and not (versioned and managed.flags & PADDED):
        found = packed_elements(tensor, bits)
    elif sound:
        item = (bits + 7) // 8
        found = elements(tensor, item, _strides(tensor))
        if expected is not None and found != expected and tensor.ndim > 0 and item:
            counts = _counted(tensor, item, expected)
    if 0 < bits < 8:
        mask = (1 << bits) - 1
        found, expected = (
            each and bytes(code & mask for code in each) for each in (found, expected)
        )
    equal = None if expected is None else found == expected
    # What is not the tensor's own memory has other values in each run.
    hidden = found is None or len(found) > 64 or equal is False
    return Struct(
        name=name,
        version=(managed.version.major, managed.version.minor) if versioned else (0, 0),
        flags=managed.flags if versioned else 0,
        device=(tensor.device.device_type, tensor.device.device_id),
        dtype=dtype,
        ndim=tensor.ndim,
        shape=tuple(tensor.shape[:rank]) if tensor.shape else None,
        strides=tuple(tensor.strides[:rank]) if tensor.strides else None,
        byte_offset=tensor.byte_offset,
        null=tuple(null),
        values="" if found is None or hidden else found.hex(),
        equal=equal,
        counts=counts,
    )
