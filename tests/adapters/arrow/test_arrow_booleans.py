"""Booleans of Arrow, which are bits: an array is unpacked as a chunked array is."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.optional_libraries import requires


def forms(array: Any) -> list[Any]:
    """Return an array, and chunked arrays of the same elements."""
    middle = len(array) // 2
    halves = [array[:middle], array[middle:]]
    return [array, pa.chunked_array([array]), pa.chunked_array(halves)]


@given(
    bits=st.lists(st.booleans(), max_size=40),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
)
def test_a_slice_begins_at_any_bit(bits: list[bool], start: int, length: int) -> None:
    """As Arrow's offset says, which counts bits."""
    array = pa.array(bits, pa.bool_()).slice(min(start, len(bits)), length)
    for x in forms(array):
        found = dlx.convert(x, np)
        assert found.dtype == bool
        assert found.tolist() == bits[start : start + length]


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_each_library_takes_them(name: str) -> None:
    """As booleans, of a copy that is its own."""
    library = requires(name)
    for x in forms(pa.array([True, False, True])[1:]):
        found = dlx.convert(x, library)
        assert "bool" in str(found.dtype)
        assert np.asarray(found).tolist() == [False, True]


def test_they_are_a_copy() -> None:
    """R37: which says so, may be written to, and is none with `copy=False`."""
    for x in forms(pa.array([True, False])):
        tensor = dlx.from_dlpack(x)
        assert tensor.is_copied
        assert not tensor.readonly
        assert dlx.convert(x, np).flags.writeable
        with pytest.raises(dlx.CopyRefused):
            dlx.convert(x, np, copy=False)
        with pytest.raises(dlx.CopyRefused):
            dlx.from_dlpack(x, copy=False)


def test_they_may_be_cast() -> None:
    """To numbers, by `dtype=`."""
    for x in forms(pa.array([True, False])):
        assert dlx.convert(x, np, dtype="float32").tolist() == [1.0, 0.0]


def test_a_tree_has_them() -> None:
    """As it has numbers."""
    found = dlx.convert_tree({"x": forms(pa.array([True, False]))}, np, strict=True)
    assert [x.tolist() for x in found["x"]] == [[True, False]] * 3


def test_a_bridged_function_has_an_array() -> None:
    """At each call; a column is left as it is, whatever it has."""
    count = dlx.bridge(np.ndarray)(lambda x: int(x.sum()))
    assert [count(pa.array([True, True])) for _ in range(3)] == [2] * 3


def test_nobody_writes_to_the_copy() -> None:
    """R38: Arrow's arrays are immutable."""
    for x in forms(pa.array([True, False])):
        with pytest.raises(BufferError), dlx.borrow(out=x):
            pass


@pytest.mark.parametrize("advice", ["fill_null(False)", "drop_null()"])
def test_nulls_are_refused_and_the_advice_is_taken(advice: str) -> None:
    """R63: DLPack has no nulls."""
    for x in forms(pa.array([True, None, True, True])):
        with pytest.raises(BufferError) as refused:
            dlx.convert(x, np)
        said = str([refused.value, *getattr(refused.value, "__notes__", ())])
        assert advice.replace("False", "value") in said
        passed = eval(f"x.{advice}", {"x": x})
        assert dlx.convert(passed, np).tolist() == passed.to_pylist()


def test_the_slice_without_the_nulls_is_taken() -> None:
    """Nulls elsewhere in the memory are not its."""
    for x in forms(pa.array([None, True, False])[1:]):
        assert dlx.convert(x, np).tolist() == [True, False]
