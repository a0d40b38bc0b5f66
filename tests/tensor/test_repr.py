"""What the repr of a `dlx.Tensor` says and shows."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
)
from support.fake_producers import ADDRESS, Producer

PADDED = Producer(dtype=(17, 4, 1), flags=DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (dlx.from_pointer(ADDRESS, (2, 3), "float32"), "float32[2, 3], cpu"),
        (dlx.from_pointer(ADDRESS, (), "bfloat16"), "bfloat16[], cpu"),
        (dlx.from_pointer(0, (0, 3), "float32x4"), "float32x4[0, 3], cpu"),
        (
            dlx.from_pointer(ADDRESS, (2, 6), "float32", strides=(12, -1)),
            "float32[2, 6], cpu, strides=[12, -1]",
        ),
        (
            dlx.from_pointer(
                ADDRESS, (2, 3), "float32", device="cuda:0", readonly=True
            ),
            "float32[2, 3], cuda:0, readonly",
        ),
        (
            dlx.from_dlpack(np.arange(3, dtype="i2"), copy=True),
            "int16[3], cpu, copied, [0, 1, 2]",
        ),
        (dlx.from_dlpack(PADDED), "float4_e2m1fn[2, 3], cpu, padded"),
    ],
)
def test_the_repr_says_in_one_line_what_is_unusual(
    tensor: dlx.Tensor, text: str
) -> None:
    """Dtype, shape and device are always there."""
    assert repr(tensor) == f"dlx.Tensor({text})"


SHOWN: list[tuple[Any, str]] = [
    (np.array(1.5), "1.5"),
    (np.array([True]), "[True]"),
    (np.array([0.1, 1e-45, 16777216], "f4"), "[0.1, 1e-45, 16777216.0]"),
    (np.array([np.nan, -np.inf, 3.4028235e38], "f4"), "[nan, -inf, 3.4028235e+38]"),
    (np.array([0.1], "f2"), "[0.099975586]"),
    (np.array([0.1, -0.0]), "[0.1, -0.0]"),
    (np.array([1j]), "[1j]"),
    (np.broadcast_to(np.int8(7), (2, 2)), "[[7, 7], [7, 7]]"),
    (np.arange(4)[::-2], "[3, 1]"),
    (np.arange(10), "[0, 1, 2, ...]"),
    (np.ones((2, 3, 5), "u1"), "[[[1, 1, 1, ...], ...], ...]"),
    (np.arange(12).reshape(6, 2), "[[0, 1], ...]"),
]


@pytest.mark.parametrize(("x", "text"), SHOWN, ids=[text for _, text in SHOWN])
def test_the_repr_shows_some_elements(x: Any, text: str) -> None:
    """All of a small tensor, the first of others; float32 in as few digits as do."""
    assert repr(dlx.from_dlpack(x)).endswith(f", {text})")


@given(st.floats(width=32))
def test_a_number_of_32_bits_is_shown_so_that_it_is_read_again(value: float) -> None:
    """Never another number."""
    array = np.array([value], "f4")
    _, text = repr(dlx.from_dlpack(array)).split(", [")
    shown = np.float32(text.removesuffix("])"))
    np.testing.assert_array_equal(shown, array[0])


def test_the_repr_shows_no_elements_of_memory_that_may_be_gone() -> None:
    """Whose life nobody tells dlx; it would be read."""
    array = np.ones(3)
    address = array.ctypes.data
    alone = dlx.from_pointer(address, (3,), "float64")
    assert repr(alone) == repr(alone[:]) == "dlx.Tensor(float64[3], cpu)"
    through = dlx.from_dlpack(alone.__dlpack__(max_version=(1, 3)))
    assert repr(through) == "dlx.Tensor(float64[3], cpu)"
    owned = dlx.from_pointer(address, (3,), "float64", owner=array)
    assert "1.0" in repr(owned)
    with dlx.borrow(array) as (lent, _):
        assert "1.0" in repr(lent)
    assert repr(lent) == "dlx.Tensor(float64[3], cpu, ended)"


@pytest.mark.parametrize(
    "tensor",
    [
        dlx.empty((10**6, 0), "float32"),
        dlx.empty(4, "int4"),
        dlx.empty(4, "float8_e4m3fn"),
        dlx.empty(4, "float32x4"),
        dlx.from_pointer(ADDRESS, (2,), "int8", device="cuda:0", owner=()),
        dlx.from_pointer(ADDRESS, (2,), "int8", device="cuda_host", owner=()),
    ],
    ids=lambda tensor: str((tensor.shape, tensor.dtype, tensor.device)),
)
def test_the_repr_shows_no_elements_that_python_cannot_read(tensor: dlx.Tensor) -> None:
    """None at all, packed, without numbers, or on a device."""
    shape = list(tensor.shape)
    assert repr(tensor) == f"dlx.Tensor({tensor.dtype}{shape}, {tensor.device})"
