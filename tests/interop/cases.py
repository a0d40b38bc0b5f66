"""What is sent: dtypes, layouts, and the traits that matter to consumers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import dlx
import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
NUMBERS = f"{INTEGERS} float32 float64"
PLAIN = f"bool {NUMBERS} float16 complex64 complex128"
FLOAT8 = (
    "float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz "
    "float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
)
TORCH_FLOAT8 = (
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
)
FLOAT6 = "float6_e2m3fn float6_e3m2fn"
DTYPES = (
    f"{PLAIN} bfloat16 complex32 {FLOAT8} {FLOAT6} float4_e2m1fn float4_e2m1fnx2 "
    "handle64"
)
"""All 18 codes of `dlpack.h` 1.3, in every width that some library has."""

NAMELESS = ["float4_e2m1fnx2", "handle64"]
"""Dtypes that NumPy cannot name."""

SHAPE = (4, 6)
SIZE = 24


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of this name, of NumPy or ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def aligned(nbytes: int, offset: int = 0) -> Array:
    """Return bytes that start `offset` after a multiple of 256, alike in every run."""
    memory = np.zeros(nbytes + 512, dtype=np.uint8)
    start = -memory.ctypes.data % 256 + offset
    return memory[start : start + nbytes]


def ones_and_twos(dtype: str, offset: int = 0) -> Array:
    """Return 4 by 6 elements that every dtype has: 1, 2, 1, 2, ...; of bool 1, 0."""
    kind = numpy_dtype(dtype)
    array: Array = aligned(SIZE * kind.itemsize, offset).view(kind).reshape(SHAPE)
    array[...] = (np.arange(SIZE).reshape(SHAPE) % 2 + 1).astype(kind)
    if dtype == "bool":
        array[:, 1::2] = False
    return array


def elements() -> Array:
    """Return 4 by 6 different elements of float32, from which layouts are made."""
    array = aligned(SIZE * 4).view(np.float32).reshape(SHAPE)
    array[...] = np.arange(SIZE).reshape(SHAPE)
    return array


def deep(x: Any) -> Any:
    """Return a view with 32 dimensions."""
    return x.reshape((1,) * 30 + SHAPE)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "row-major": lambda x: x,
    "1-d": lambda x: x[1],
    "0-d": lambda x: x[1, 2],
    "empty": lambda x: x[:0],
    "size-1": lambda x: x[:1, 2:3],
    "strided": lambda x: x[::2, 1::2],
    "transposed": lambda x: x.T,
    "broadcast": lambda x: np.broadcast_to(x[0], SHAPE),
    "negative": lambda x: x[::-1, ::-2],
    "offset": lambda x: x[0, 1:],
    "32-d": deep,
    "misaligned": lambda x: x,
    "read-only": lambda x: x,
}
"""How a layout is made from `elements`; some libraries spell it differently."""
FLAT: dict[str, Callable[[Any], Any]] = {
    "1-d": lambda x: x,
    "empty": lambda x: x[:0],
    "offset": lambda x: x[1:],
}
"""The same for libraries whose arrays have one dimension."""


class Case(NamedTuple):
    """A tensor to send: a dtype in the plainest layout, or a layout of float32."""

    dtype: str
    layout: str

    def __str__(self) -> str:
        """What is unusual about it."""
        return self.layout or self.dtype


def expected_elements(case: Case, flat: bool) -> Array:
    """Return the elements of a case, made by NumPy."""
    if not case.layout:
        if case.dtype in NAMELESS:
            return np.zeros(SHAPE, dtype="V1")
        numbers = ones_and_twos(case.dtype)
        return numbers.reshape(-1) if flat else numbers
    array = elements()
    if flat:
        return np.asarray(FLAT[case.layout](array.reshape(-1)))
    if case.layout == "0-d":
        return np.asarray(array[1, 2, ...])
    return np.asarray(LAYOUTS[case.layout](array))


def is_compact(tensor: dlx.Tensor) -> bool:
    """Whether the elements have no gaps, for some order of the dimensions."""
    if tensor.size == 0:
        return True
    step = 1
    for stride, extent in sorted(zip(tensor.strides, tensor.shape, strict=True)):
        if extent > 1:
            if stride != step:
                return False
            step *= extent
    return True


def is_protected(tensor: dlx.Tensor) -> bool:
    """Whether its producer says that it is read-only; some cannot say."""
    return tensor.readonly and "maybe readonly" not in repr(tensor)


def traits(tensor: dlx.Tensor) -> set[str]:
    """Return the names of what consumers may refuse; computed from the tensor alone."""
    found = {"any", *(f"ndim>{n}" for n in range(tensor.ndim))}
    spans = [
        stride
        for extent, stride in zip(tensor.shape, tensor.strides, strict=True)
        if extent > 1
    ]
    bits = tensor.dtype.bits * tensor.dtype.lanes
    tests = {
        "ndim<1": tensor.ndim < 1,
        "read-only": is_protected(tensor),
        "protected": is_protected(tensor) and tensor.size > 0,
        "unversioned": tensor.readonly and not is_protected(tensor),
        "empty": tensor.size == 0,
        "padded": tensor.nbytes > -(-tensor.size * bits // 8),
        "strided": not tensor.is_contiguous,
        "gaps": not is_compact(tensor),
        "negative": any(stride < 0 for stride in spans),
        "broadcast": 0 in spans,
        "misaligned": tensor.data_ptr % tensor.itemsize != 0,
        "offset": tensor.data_ptr % 64 != 0,
    }
    return found | {name for name, holds in tests.items() if holds}


def memory(tensor: dlx.Tensor) -> bytes:
    """Return the elements in row-major order, read from their address."""
    if tensor.size == 0:
        return b""
    if tensor.is_contiguous:
        return ctypes.string_at(tensor.data_ptr, tensor.nbytes)
    item = tensor.itemsize
    steps = [
        (extent - 1) * stride
        for extent, stride in zip(tensor.shape, tensor.strides, strict=True)
    ]
    first = sum(min(step, 0) for step in steps) * item
    span = sum(abs(step) for step in steps) * item + item
    raw = ctypes.string_at(tensor.data_ptr + first, span)
    array = np.frombuffer(raw, dtype=np.uint8)[-first:]
    strides = (*(stride * item for stride in tensor.strides), 1)
    view: Array = np.lib.stride_tricks.as_strided(
        array, (*tensor.shape, item), strides, writeable=False
    )
    return view.tobytes()
