"""`copy=True` of what lies in memory once and is seen often, and of packed rows."""

from __future__ import annotations

import ctypes
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytestmark = pytest.mark.slow

Array = NDArray[Any]
DTYPES = ["int8", "float16", "float32", "float64", "complex128"]


def copied(array: Array) -> Array:
    """A copy that dlx made."""
    tensor = dlx.from_dlpack(array, copy=True)
    assert tensor.is_contiguous
    return np.asarray(tensor)


def numbered(shape: tuple[int, ...], dtype: str) -> Array:
    """An array whose elements count in a cycle that divides no extent."""
    return np.resize(np.arange(113).astype(dtype), shape)


@st.composite
def repeated(draw: st.DrawFn) -> Array:
    """An array of up to four dimensions, permuted, some of them broadcast."""
    extents = st.sampled_from([1, 2, 3, 4, 7, 16, 65, 130])
    ndim = draw(st.integers(1, 4))
    dims = [draw(extents) for _ in range(ndim)]
    while np.prod(dims) > 1 << 18:
        dims[dims.index(max(dims))] = 2
    wide = [draw(st.booleans()) for _ in dims]
    kept = tuple(
        1 if broad else extent for broad, extent in zip(wide, dims, strict=True)
    )
    order = draw(st.permutations(range(ndim)))
    base = numbered(tuple(kept[axis] for axis in order), draw(st.sampled_from(DTYPES)))
    return np.broadcast_to(base.transpose(np.argsort(order)), dims)


@given(repeated())
@settings(max_examples=300)
def test_a_copy_of_any_broadcast_has_numpys_elements(array: Array) -> None:
    """R47, R59, R98: strides of 0 in any dimensions."""
    np.testing.assert_array_equal(copied(array), array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kept", "shape"),
    [
        ((1, 1), (5003, 4001)),
        ((1, 4001), (5003, 4001)),
        ((5003, 1), (5003, 4001)),
        ((1, 5), (4_000_037, 5)),
        ((4_000_037, 1), (4_000_037, 5)),
        ((271, 1, 277), (271, 283, 277)),
        ((1, 283, 1), (271, 283, 277)),
        ((2, 1, 3, 1, 5), (2, 401, 3, 1733, 5)),
    ],
)
def test_a_broadcast_that_threads_share_has_numpys_elements(
    kept: tuple[int, ...], shape: tuple[int, ...], dtype: str
) -> None:
    """R47, R59, R98: more than 16 MiB, except of bytes."""
    array = np.broadcast_to(numbered(kept, dtype), shape)
    assert np.array_equal(copied(array), array)


@pytest.mark.parametrize("turned", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_a_permuted_broadcast_that_threads_share_has_numpys_elements(
    turned: tuple[int, ...],
) -> None:
    """R47, R59, R98: large enough to be divided."""
    base = numbered((173, 1, 181), "float32").transpose(1, 2, 0)
    array = np.broadcast_to(base, (179, 181, 173)).transpose(turned)
    assert np.array_equal(copied(array), array)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("extra", [0, 1, 8])
@pytest.mark.parametrize("offset", [0, 3])
def test_rows_of_packed_elements_are_copied_as_their_bits(
    bits: int, extra: int, offset: int
) -> None:
    """R107: rows of whole bytes, at whole bytes and between, and of others."""
    rows, columns = 5, 16 - offset
    memory = np.random.default_rng(bits).bytes(200)
    whole = int.from_bytes(memory, "little")
    buffer = ctypes.create_string_buffer(memory, len(memory))
    tensor = dlx.from_pointer(
        ctypes.addressof(buffer),
        (rows, columns),
        {6: "float6_e3m2fn"}.get(bits, f"uint{bits}"),
        strides=(columns + extra, 1),
        owner=buffer,
    )
    copy = dlx.from_dlpack(tensor, copy=True)
    found = int.from_bytes(ctypes.string_at(copy.data_ptr, copy.nbytes), "little")
    mask = (1 << bits) - 1
    for row in range(rows):
        for column in range(columns):
            there = row * (columns + extra) + column
            here = row * columns + column
            assert found >> here * bits & mask == whole >> there * bits & mask
