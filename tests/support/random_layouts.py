"""Tensors of every dtype and any layout, and the bits of their elements."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product

import dlx
from hypothesis import strategies as st

CODES = {
    "int": (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64),
    "uint": (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64),
    "float": (16, 32, 64),
    "bfloat": (16,),
    "complex": (32, 64, 128),
}
SCALARS = [f"{name}{bits}" for name, widths in CODES.items() for bits in widths]
SCALARS += ["bool", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
SCALARS += ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"]
SCALARS += ["float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
# Every scalar of DLPack 1.3, and vectors.
DTYPES = [*SCALARS, "float32x3", "float4_e2m1fnx2", "uint8x4"]


def bits_between(dtype: str, padded: bool) -> tuple[int, int]:
    """Bits of an element, and from the begin of one to that of the next."""
    kind = dlx.DType(dtype)
    bits = kind.bits * kind.lanes
    return bits, -(-bits // 8) * 8 if padded and kind.bits < 8 else bits


def offsets(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Offsets of the elements from the first, in elements and row-major order."""
    return [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in product(*map(range, shape))
    ]


def taken(
    shape: Sequence[int], strides: Sequence[int], dtype: str, padded: bool
) -> set[int]:
    """Bytes that hold bits of an element, relative to that of the first element."""
    bits, step = bits_between(dtype, padded)
    return {
        byte
        for offset in offsets(shape, strides)
        for byte in range(offset * step // 8, (offset * step + bits + 7) // 8)
    }


def values(t: dlx.Tensor) -> list[int]:
    """Bits of each element, in row-major order."""
    bits, step = bits_between(t.dtype.name, t.is_padded)
    found = []
    for offset in offsets(t.shape, t.strides):
        byte, shift = divmod(offset * step, 8)
        memory = ctypes.string_at(t.data_ptr + byte, (shift + bits + 7) // 8)
        found.append(int.from_bytes(memory, "little") >> shift & (1 << bits) - 1)
    return found


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int], str, bool]:
    """Draw a shape, strides, a dtype and whether its elements are padded."""
    ndim = draw(st.integers(0, 4))
    shape = draw(st.lists(st.integers(0, 4), min_size=ndim, max_size=ndim))
    dtype, padded = draw(st.sampled_from(DTYPES)), draw(st.booleans())
    if draw(st.booleans()):
        any_stride = st.integers(-5, 5)
        strides = draw(st.lists(any_stride, min_size=ndim, max_size=ndim))
        return shape, strides, dtype, padded
    # A permutation of a compact layout, some dimensions backward or repeated.
    strides, step = [0] * ndim, 1
    for axis in draw(st.permutations(range(ndim))):
        strides[axis] = step * draw(st.sampled_from([1, 1, 1, -1, 0]))
        step *= max(shape[axis], 1) if strides[axis] else 1
    return shape, strides, dtype, padded


@st.composite
def tensors(draw: st.DrawFn) -> dlx.Tensor:
    """Draw a tensor in memory of its own, with other bytes around it."""
    shape, strides, dtype, padded = draw(layouts())
    used = taken(shape, strides, dtype, padded) or {0}
    # Elements begin at multiples of their sizes.
    before = -(min(used) // 64 * 64) + 64
    memory = bytearray(draw(st.randoms()).randbytes(before + max(used) + 64))
    return dlx.from_buffer(
        bytes(memory) if draw(st.booleans()) else memory,
        shape,
        dtype,
        strides=strides,
        offset=before,
        padded=padded,
    )
