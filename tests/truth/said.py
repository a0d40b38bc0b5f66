"""What a tensor holds, and how it is read from its memory, without DLPack."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import dlx
import numpy as np
from support.dlpack_abi import DLPACK_FLAG_BITMASK_READ_ONLY, exported

TRUE = bytes([0, *[1] * 255])


class Said(NamedTuple):
    """The elements in row-major order and native bytes, and what they must not lose."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes
    protected: bool = False
    """Whether the library treats the memory as read-only."""
    unsaid: bool = False
    """Whether nothing that the object exports can say so."""
    tracked: bool = False
    """Whether operations are recorded for gradients, which an export would lose."""
    traced: bool = False
    """Whether they are recorded in a graph, in which an export would be a constant."""

    def __str__(self) -> str:
        """Return the elements as numbers, where NumPy has the dtype, else in hex."""
        try:
            numbers = str(self.numbers().tolist())
        except (TypeError, ValueError):
            numbers = self.data.hex()
        numbers = numbers if len(numbers) < 200 else numbers[:200] + " ..."
        return f"{self.dtype}{list(self.shape)} {numbers}"

    def content(self) -> tuple[Any, ...]:
        """Return what is compared; in a bool, any byte other than 0 is True."""
        data = self.data
        if self.dtype == "bool":
            data = data.translate(TRUE)
        return self.shape, self.dtype, data

    def numbers(self) -> Any:
        """Return the elements as a NumPy array."""
        return np.frombuffer(self.data, numpy_dtype(self.dtype)).reshape(self.shape)


def numpy_dtype(name: str) -> Any:
    """Return the dtype of this name, of NumPy or ml_dtypes."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def memory(
    address: int, shape: Sequence[int], strides: Sequence[int], item: int
) -> bytes:
    """Return elements of ``item`` bytes from an address; strides count elements."""
    if 0 in shape:
        return b""
    steps = [
        (extent - 1) * stride * item
        for extent, stride in zip(shape, strides, strict=True)
    ]
    first = sum(min(step, 0) for step in steps)
    span = sum(abs(step) for step in steps) + item
    raw = ctypes.string_at(address + first, span)
    inner = [stride * item for stride in strides]
    return np.ndarray(shape, f"V{item}", raw, -first, inner).tobytes()


def exports_read_only(x: Any) -> bool:
    """Whether an object's own ``__dlpack__`` says READ_ONLY."""
    try:
        flags = exported(x).flags
    except Exception:
        # Refused, or of before DLPack 1: there are no flags.
        return False
    return bool(flags & DLPACK_FLAG_BITMASK_READ_ONLY)


def of_dlx(x: dlx.Tensor) -> Said | None:
    """Read a `dlx.Tensor` through its attributes alone."""
    data = memory(x.data_ptr, x.shape, x.strides, x.itemsize)
    unsaid = x.readonly and "maybe readonly" in repr(x)
    return Said(x.shape, str(x.dtype), data, x.readonly, unsaid)


def is_masked(x: Any) -> bool:
    """Whether an array has elements that are not there, whatever its class.

    NumPy's own classes, those of NumPy's modules after a reload, astropy's, and others.
    """
    mask = getattr(x, "mask", False)
    if mask is None:  # which astropy's classes never mean
        return hasattr(type(x), "unmasked")
    # A mask of a struct has a field for each of its fields.
    return any(np.asarray(mask).tobytes())


def of_numpy(x: Any) -> Said | None:
    """Read a NumPy array; None if its elements are masked or not numbers."""
    dtype = x.dtype
    ours = dtype.type.__module__ == "ml_dtypes"
    if not (ours or dtype.kind in "biufc") or is_masked(x):
        return None
    # A plain array: a subclass may override methods.
    plain = np.ndarray.view(x, np.ndarray)
    if not dtype.isnative:
        plain = plain.astype(dtype.newbyteorder("="))
    return Said(x.shape, dtype.name, plain.tobytes(), not x.flags.writeable)


def frozen_copy(x: Any) -> Any:
    """Return a NumPy scalar as a read-only array."""
    array = np.array(x)
    array.flags.writeable = False
    return array


FORMATS = {
    "?": "bool",
    "Zf": "complex",
    "Zd": "complex",
    **dict.fromkeys("bhilqn", "int"),
    **dict.fromkeys("BHILQNPc", "uint"),
    **dict.fromkeys("efd", "float"),
}


def of_buffer(x: Any) -> Said | None:
    """Read a Python buffer; None unless its format is one number."""
    try:
        view = memoryview(x)
    except (TypeError, ValueError, BufferError):
        return None
    kind = FORMATS.get(view.format.lstrip("@="), "")
    if view.format[0] == "<" and sys.byteorder == "little":
        kind = FORMATS.get(view.format[1:], "")
    if not kind:
        return None
    name = kind if kind == "bool" else f"{kind}{8 * view.itemsize}"
    return Said(view.shape or (), name, view.tobytes(), view.readonly)


CTYPES = (ctypes.Array, ctypes._SimpleCData, ctypes.Structure)
BUFFERS = (bytes, bytearray, memoryview, array.array, mmap.mmap, *CTYPES)
