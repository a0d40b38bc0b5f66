"""The value of a tensor of one element, as a number of Python."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
COMPLEX = ["c8", "c16"]


@given(st.sampled_from([*NUMBERS, *COMPLEX]).flatmap(lambda d: arrays.arrays(d, ())))
def test_its_value_is_that_of_numpy(x: Any) -> None:
    """Array API, `__bool__`, `__int__`, `__float__`, `__complex__`."""
    t = dlx.from_dlpack(x)
    assert bool(t) == bool(x)
    np.testing.assert_equal(complex(t), complex(x))
    if x.dtype.kind != "c":
        np.testing.assert_equal(float(t), float(x))
    if x.dtype.kind in "?iu":
        assert int(t) == int(x)
    if x.dtype.kind in "iu":
        assert index(t) == int(x)
    elif x.dtype.kind == "f" and np.isfinite(x):
        assert int(t) == int(x)


@given(st.integers(0, 0xFFFF))
def test_every_half_and_bfloat16_has_its_value(bits: int) -> None:
    """Subnormal ones, infinities and NaN, too."""
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = np.array(bits, "u2").view(dtype)
        np.testing.assert_equal(float(dlx.from_dlpack(x)), float(x))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_has_a_value_in_any_shape(shape: tuple[int, ...]) -> None:
    """A digit is a number, not text (`int` would parse a buffer)."""
    t = dlx.from_dlpack(np.full(shape, ord("5"), "u1"))
    assert (int(t), float(t), bool(t)) == (53, 53.0, True)


@pytest.mark.parametrize("take", [bool, int, float, complex, index])
@pytest.mark.parametrize("shape", [(0,), (2,), (1, 3)])
def test_other_numbers_of_elements_have_none(
    take: Callable[[Any], object], shape: tuple[int, ...]
) -> None:
    """Not even their truth."""
    with pytest.raises(TypeError, match="only one element has a value"):
        take(dlx.from_dlpack(np.zeros(shape, "i8")))


def test_memory_of_a_device_has_none() -> None:
    """It would take a copy, which nobody asked for."""
    t = dlx.from_pointer(256, (), "int32", device="cuda:0")
    with pytest.raises(TypeError, match=r"on cuda:0.*t\.to\(device=.cpu.\)"):
        int(t)


@pytest.mark.parametrize(
    ("dtype", "take", "match"),
    [
        ("float64", index, "float64 is not an index"),
        ("bool", index, "bool is not an index"),
        ("complex64", int, "complex64 is not an int"),
        ("complex128", float, "complex128 is not a float"),
    ],
)
def test_a_value_of_another_kind_is_refused(
    dtype: str, take: Callable[[Any], object], match: str
) -> None:
    """As Python does for its own numbers."""
    with pytest.raises(TypeError, match=match):
        take(dlx.from_dlpack(np.ones((), dtype)))


def test_what_python_has_no_number_for_is_refused() -> None:
    """An element of 8 bits or less."""
    x = np.ones((), ml_dtypes.float8_e4m3fn)
    with pytest.raises(TypeError, match="no number for an element of float8_e4m3fn"):
        float(dlx.from_dlpack(x))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_no_int_stands_for_it(value: float) -> None:
    """`int(float)` raises the same."""
    with pytest.raises((OverflowError, ValueError), match="to integer"):
        int(dlx.from_dlpack(np.array(value)))
