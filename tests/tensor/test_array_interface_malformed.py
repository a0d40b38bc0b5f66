"""What the dict of `__array_interface__` and the struct of `__array_struct__` say."""

from __future__ import annotations

import array
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_array_interface import (
    ALIGNED,
    NOTSWAPPED,
    WRITEABLE,
    ByDict,
    ByStruct,
    Struct,
)
from support.fake_buffer import Exporter

# What the dict says

MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "version 2": ({"version": 2}, "version 2; expected 3"),
    "version 4": ({"version": 4}, "version 4; expected 3"),
    "version of another type": ({"version": "3"}, "version '3'; expected 3"),
    "mask": ({"mask": np.ones(3)}, "mask .*; expected none"),
    "no order": ({"typestr": "f8"}, 'typestr "f8"'),
    "no size": ({"typestr": "<f"}, 'typestr "<f"'),
    "no typestr": ({"typestr": ""}, 'typestr ""'),
    "order left open": ({"typestr": "|f8"}, r'typestr "\|f8"'),
    "odd size": ({"typestr": "<i3"}, 'typestr "<i3"'),
    "signed size": ({"typestr": "<f+8"}, r'typestr "<f\+8"'),
    "huge size": ({"typestr": "<f99999999999999999999"}, "typestr"),
    "not ASCII": ({"typestr": "\u20acf8"}, "typestr"),
    "bits": ({"typestr": "|t1"}, "typestr"),
    "typestr of another type": ({"typestr": b"<f8"}, "typestr b'<f8'; expected a str"),
    "fields": ({"descr": [("x", "<f4"), ("y", "<f4")]}, "descr .*expected none"),
    "a field": ({"descr": [("x", "<f8")]}, "descr .*expected none"),
    "shape of another type": ({"shape": 3}, "shape 3; expected a tuple"),
    "shape of floats": ({"shape": (3.0,)}, "shape .*; expected a tuple"),
    "shape beyond 64 bits": ({"shape": (2**64,)}, "shape .*; expected a tuple"),
    "negative extent": ({"shape": (-3,)}, "negative"),
    "overflow": ({"shape": (2**62,), "strides": None}, "address space"),
    "beyond the end": ({"data": (2**64 - 8, False)}, "beyond the address space"),
    "before the start": (
        {"data": (8, False), "strides": (-8,)},
        "beyond the address space",
    ),
    "65 dimensions": ({"shape": (1,) * 65}, "65 dimensions"),
    "more strides": ({"strides": (8, 8)}, r"strides \[8, 8\] for shape \[3\]"),
    "fewer strides": ({"strides": ()}, r"strides \[\] for shape \[3\]"),
    "strides of another type": ({"strides": "8"}, "strides '8'; expected a"),
    "three data": ({"data": (8, False, 0)}, "data .*; expected"),
    "no address": ({"data": ("8", False)}, "data .*; expected"),
    "negative address": ({"data": (-8, False)}, "data .*; expected"),
    "NULL": ({"data": (0, False)}, "NULL"),
    "offset to an address": ({"offset": 8}, "offset 8"),
}


@pytest.mark.parametrize(("changed", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_dict_is_refused(changed: dict[str, Any], message: str) -> None:
    """NumPy's array interface, version 3; R63."""
    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(ByDict(np.arange(3.0), **changed))


@pytest.mark.parametrize("key", ["version", "typestr", "shape", "data"])
@pytest.mark.parametrize("value", [..., None], ids=["absent", "None"])
def test_a_missing_entry_is_named(key: str, value: Any) -> None:
    """NumPy's array interface, version 3."""
    with pytest.raises(BufferError, match=f'has no "{key}"; expected'):
        dlx.from_dlpack(ByDict(np.arange(3.0), **{key: value}))


@pytest.mark.parametrize("value", [..., None], ids=["absent", "None"])
@pytest.mark.parametrize("key", ["strides", "descr", "mask", "offset"])
def test_an_entry_that_says_nothing_may_be_left_out(key: str, value: Any) -> None:
    """NumPy's array interface, version 3."""
    source = ByDict(np.arange(6.0).reshape(2, 3), **{key: value})
    assert dlx.from_dlpack(source).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_cause_of_a_refusal_is_kept() -> None:
    """R60: what an entry raises when it is asked."""

    class Index:
        def __index__(self) -> int:
            raise ZeroDivisionError

    with pytest.raises(BufferError) as caught:
        dlx.from_dlpack(ByDict(np.arange(3.0), shape=(Index(),)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# Data that are a buffer


def by_buffer(data: Any, shape: tuple[int, ...], **entries: Any) -> ByDict:
    """Show elements of type int16 in a buffer."""
    entries = {"strides": None, "descr": None} | entries
    given = {"data": data, "shape": shape, "typestr": "<i2", **entries}
    return ByDict(np.arange(3.0), **given)


def test_data_may_be_a_buffer_with_an_offset() -> None:
    """NumPy's array interface, version 3."""
    memory = array.array("h", range(6))
    tensor = dlx.from_dlpack(by_buffer(memory, (2, 2), offset=4))
    assert tensor.numpy().tolist() == [[2, 3], [4, 5]]
    assert not tensor.readonly
    memory[2] = 7
    assert tensor.numpy().tolist() == [[7, 3], [4, 5]]


def test_data_in_bytes_are_read_only() -> None:
    """R39: as their buffer is."""
    assert dlx.from_dlpack(by_buffer(b"\1\0\2\0", (2,))).readonly


@given(
    shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    steps=st.lists(st.integers(-4, 4), min_size=3, max_size=3),
    offset=st.integers(-8, 40),
    compact=st.booleans(),
)
def test_elements_outside_the_buffer_are_refused(
    shape: tuple[int, ...], steps: list[int], offset: int, compact: bool
) -> None:
    """R63: the interface says how long the buffer is, and what it is to hold."""
    memory = bytearray(range(40))
    strides = tuple(2 * step for step in steps[: len(shape)])
    if compact:
        strides = np.empty(shape, "int16").strides
    ends = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    first = offset + sum(min(end, 0) for end in ends)
    last = offset + sum(max(end, 0) for end in ends)
    source = by_buffer(memory, shape, strides=None if compact else strides)
    source.interface["offset"] = offset
    if 0 in shape:
        assert dlx.from_dlpack(source).shape == shape
    elif first >= 0 and last + 2 <= 40:
        meant = np.ndarray(shape, "int16", memory, offset, strides)
        np.testing.assert_array_equal(dlx.from_dlpack(source).numpy(), meant)
    else:
        with pytest.raises(BufferError, match="the buffer of 40 bytes"):
            dlx.from_dlpack(source)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (memoryview(b"abcdef")[::2], BufferError, "contiguous"),
        (5, TypeError, "bytes-like object is required"),
        ([8, False], TypeError, "bytes-like object is required"),
    ],
    ids=["strided", "int", "list"],
)
def test_data_without_a_plain_buffer_are_refused(
    data: Any, error: type[Exception], message: str
) -> None:
    """R60: with what CPython says of it."""
    with pytest.raises(error, match=message):
        dlx.from_dlpack(by_buffer(data, (1,)))


def test_a_buffer_is_held_and_given_back_once() -> None:
    """R8, R15, S10: where "data" is a buffer."""
    memory = Exporter()
    tensor = dlx.from_dlpack(by_buffer(memory, (12,)))
    assert (memory.exported, memory.released) == (1, 0)
    del tensor
    assert (memory.exported, memory.released) == (1, 1)


def test_a_refused_buffer_is_given_back() -> None:
    """R11: one that is smaller than the elements."""
    memory = Exporter()
    with pytest.raises(BufferError, match="the buffer of 24 bytes"):
        dlx.from_dlpack(by_buffer(memory, (13,)))
    assert (memory.exported, memory.released) == (1, 1)


# What the struct says


def test_a_struct_comes_in_as_it_is() -> None:
    """NumPy's `PyArrayInterface`."""
    tensor = dlx.from_dlpack(Struct())
    assert tensor.dtype == "float32"
    assert not tensor.readonly
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_null_strides_mean_row_major() -> None:
    """NumPy's `PyArrayInterface`."""
    assert dlx.from_dlpack(Struct(strides=None)).strides == (3, 1)


def test_the_writeable_flag_is_carried() -> None:
    """R39: a struct without NPY_ARRAY_WRITEABLE is read-only."""
    assert dlx.from_dlpack(Struct(flags=NOTSWAPPED)).readonly


@pytest.mark.parametrize("flags", [0, NOTSWAPPED])
def test_bytes_have_no_order(flags: int) -> None:
    """R101: elements of one byte need no NPY_ARRAY_NOTSWAPPED."""
    source = Struct(typekind=b"u", itemsize=1, flags=flags, strides=(3, 1))
    assert dlx.from_dlpack(source).dtype == "uint8"


STRUCTS: dict[str, tuple[dict[str, Any], str]] = {
    "another struct": ({"two": 3}, "begins with 3"),
    "swapped": ({"flags": ALIGNED | WRITEABLE}, "itemsize 4 and swapped byte order"),
    "void": ({"typekind": b"V"}, "typekind 'V', itemsize 4"),
    "size 3": ({"itemsize": 3}, "itemsize 3"),
    "size 0": ({"itemsize": 0}, "itemsize 0"),
    "negative size": ({"itemsize": -4}, "itemsize -4"),
    "size 2**8 + 4": ({"itemsize": 260}, "itemsize 260"),
    "negative nd": ({"nd": -1}, "ndim is -1"),
    "65 dimensions": ({"nd": 65}, "65 dimensions"),
    "NULL shape": ({"shape": None}, "shape is NULL, but ndim is 2"),
    "negative extent": ({"shape": (-1, 3)}, "negative"),
    "overflow": ({"shape": (2**62, 2**62)}, "address space"),
    "beyond the end": ({"data": 2**64 - 8}, "beyond the address space"),
    "between elements": ({"strides": (12, 3)}, "itemsize 4"),
    "NULL data": ({"data": None}, "NULL"),
    "a name": ({"name": b"dltensor"}, 'named "dltensor"; expected one without'),
}


@pytest.mark.parametrize(("fields", "message"), STRUCTS.values(), ids=STRUCTS)
def test_a_malformed_struct_is_refused(fields: dict[str, Any], message: str) -> None:
    """NumPy's `PyArrayInterface`; R63, R88, R92, R109, R111."""
    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(Struct(**fields))


def test_the_capsule_is_held_too() -> None:
    """R15: a scalar's capsule owns the copy of the value that it points to."""
    tensor = dlx.from_dlpack(ByStruct(np.float64(1.5)))
    np.full(4, 9.0)
    assert tensor.numpy() == 1.5
