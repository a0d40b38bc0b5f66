"""Python buffers that dlx takes, of objects that know nothing of DLPack."""

from __future__ import annotations

import array
import ctypes
import mmap
import struct
import sys
from collections.abc import Callable
from ctypes import addressof, c_double, c_int32, c_ssize_t
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from support.array_views import views
from support.dlx_producers import ByMethod, Stored
from support.fake_buffer import Exporter

SOURCES: dict[str, tuple[Callable[[], Any], str]] = {
    "bytes": (lambda: b"abc", "uint8"),
    "no bytes": (lambda: b"", "uint8"),
    "bytearray": (lambda: bytearray(b"abc"), "uint8"),
    "memoryview": (lambda: memoryview(b"abcdef"), "uint8"),
    "backwards": (lambda: memoryview(bytearray(b"abcdef"))[::-2], "uint8"),
    "rows": (lambda: memoryview(bytes(24)).cast("i", (2, 3)), "int32"),
    "characters": (lambda: memoryview(b"abc").cast("c"), "uint8"),
    "array of int16": (lambda: array.array("h", [1, -2]), "int16"),
    "array of long": (lambda: array.array("l", [1, -2]), "int64"),
    "array of double": (lambda: array.array("d", [1, -2]), "float64"),
    "empty array": (lambda: array.array("f"), "float32"),
    "mmap": (lambda: mmap.mmap(-1, 64), "uint8"),
    "ctypes array": (lambda: (c_int32 * 3 * 2)(*[(c_int32 * 3)(1, 2, 3)]), "int32"),
    "ctypes characters": (lambda: (ctypes.c_char * 3)(b"a"), "uint8"),
    "ctypes scalar": (lambda: c_double(1.5), "float64"),
    "NumPy scalar": (lambda: np.float32(1.5), "float32"),
    "NumPy bool": (lambda: np.bool_(True), "bool"),
}

LETTERS = {
    "?": "bool",
    "b": "int8",
    "B": "uint8",
    "c": "uint8",
    "h": "int16",
    "H": "uint16",
    "i": "int32",
    "I": "uint32",
    "q": "int64",
    "Q": "uint64",
    "e": "float16",
    "f": "float32",
    "d": "float64",
}
COMPLEX = {"Zf": ("complex64", 8), "Zd": ("complex128", 16)}
NATIVE = "<" if sys.byteorder == "little" else ">"
FOREIGN = {"<": ">", ">": "<"}[NATIVE]


def one(letters: str, itemsize: int) -> Exporter:
    """Export one element of a format, which is 0."""
    zero = (ctypes.c_char * itemsize)()
    return Exporter(
        buf=addressof(zero),
        len=itemsize,
        itemsize=itemsize,
        format=letters.encode(),
        internal=None,
        ndim=0,
        shape=None,
        strides=None,
    )


@pytest.mark.parametrize(("make", "dtype"), SOURCES.values(), ids=SOURCES)
def test_a_buffer_comes_in_as_it_is(make: Callable[[], Any], dtype: str) -> None:
    """R39, R49: against what `memoryview` says of it."""
    source = make()
    tensor = dlx.from_dlpack(source)
    shown = memoryview(source)
    assert (tensor.shape, tensor.nbytes) == (shown.shape, shown.nbytes)
    assert tensor.readonly == shown.readonly
    assert tensor.dtype == dtype
    assert tensor.device == "cpu"
    assert memoryview(tensor).tobytes() == shown.tobytes()


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float16", "uint64"])
def test_a_numpy_scalar_comes_in_as_it_is(dtype: str) -> None:
    """R104: it has no `__dlpack__`, unlike arrays."""
    tensor = dlx.from_dlpack(np.dtype(dtype).type(3))
    assert tensor.dtype == dtype
    assert (tensor.shape, tensor.readonly) == ((), True)
    assert tensor.numpy() == 3


def test_the_memory_is_shared() -> None:
    """R49: writes are seen on both sides."""
    source = bytearray(3)
    tensor = dlx.from_dlpack(source)
    source[1] = 7
    np.from_dlpack(tensor)[2] = 9
    assert memoryview(tensor).tolist() == [0, 7, 9]
    assert source == b"\0\7\11"


@given(views())
def test_a_strided_buffer_comes_in_as_it_is(view: np.ndarray) -> None:
    """R92, R95, R97, R98: a `memoryview` has no `__dlpack__`, whatever it shows."""
    tensor = dlx.from_dlpack(view.data)
    assert tensor.data_ptr == (view.ctypes.data if view.size else 0)
    assert tensor.readonly == (not view.flags.writeable)
    np.testing.assert_array_equal(tensor.numpy(), view)


# Formats


@pytest.mark.parametrize("order", ["", "@", "=", NATIVE])
@pytest.mark.parametrize("letter", LETTERS)
def test_the_letters_of_the_struct_module_are_known(letter: str, order: str) -> None:
    """CPython's `struct`, native and standard sizes; R102 to R104."""
    source = one(order + letter, struct.calcsize(order + letter))
    assert dlx.from_dlpack(source).dtype == LETTERS[letter]


@pytest.mark.parametrize("order", ["", "@", "=", NATIVE])
@pytest.mark.parametrize(("letter", "kind"), [("l", "int"), ("L", "uint")])
def test_a_long_has_the_size_that_its_prefix_says(
    letter: str, kind: str, order: str
) -> None:
    """CPython's `struct`: 4 bytes in standard size, C's own in native size."""
    itemsize = struct.calcsize(order + letter)
    assert (
        dlx.from_dlpack(one(order + letter, itemsize)).dtype == f"{kind}{itemsize * 8}"
    )


@pytest.mark.parametrize("order", ["", "@"])
@pytest.mark.parametrize(("letter", "kind"), [("n", "int"), ("N", "uint")])
def test_a_size_has_native_size(letter: str, kind: str, order: str) -> None:
    """CPython's `struct`: `ssize_t` and `size_t`."""
    itemsize = ctypes.sizeof(c_ssize_t)
    assert (
        dlx.from_dlpack(one(order + letter, itemsize)).dtype == f"{kind}{itemsize * 8}"
    )


@pytest.mark.parametrize("order", ["", "@", "=", NATIVE])
@pytest.mark.parametrize("letters", COMPLEX)
def test_complex_numbers_are_known(letters: str, order: str) -> None:
    """PEP 3118; R104."""
    dtype, itemsize = COMPLEX[letters]
    assert dlx.from_dlpack(one(order + letters, itemsize)).dtype == dtype


@pytest.mark.parametrize("order", [FOREIGN, "!" if FOREIGN == ">" else FOREIGN])
@pytest.mark.parametrize("letter", LETTERS)
def test_a_foreign_byte_order_is_accepted_where_it_means_nothing(
    letter: str, order: str
) -> None:
    """R101: in elements of one byte."""
    itemsize = struct.calcsize(order + letter)
    source = one(order + letter, itemsize)
    if itemsize == 1:
        assert dlx.from_dlpack(source).dtype == LETTERS[letter]
    else:
        with pytest.raises(BufferError, match=f'"{order}{letter}".*native byte order'):
            dlx.from_dlpack(source)


@pytest.mark.parametrize(
    "text",
    [
        *("", "@", "g", "P", "O", "s", "p", "x", "u", "w", "Zg", "ff", "2f", "1f"),
        *("f:x:", "T{f:x:}", "(2)f", "&f", "X{}", " f", "=n", "=N", "^f", "<<f", "Z"),
    ],
)
def test_another_format_is_refused_by_its_name(text: str) -> None:
    """R63: the error quotes the format."""
    source = Exporter(format=text.encode())
    with pytest.raises(BufferError) as refused:
        dlx.from_dlpack(source)
    assert f'elements of format "{text}"' in str(refused.value)


def test_a_format_left_out_means_bytes() -> None:
    """CPython's `Py_buffer`: NULL is "B"."""
    source = Exporter(format=None, itemsize=1, len=6, strides=(3, 1))
    assert dlx.from_dlpack(source).dtype == "uint8"


def test_a_structure_of_ctypes_is_refused() -> None:
    """R63: its format names the fields."""

    class Pair(ctypes.Structure):
        _fields_ = (("x", c_int32), ("y", c_int32))

    with pytest.raises(BufferError, match=r"T\{"):
        dlx.from_dlpack((Pair * 2)())


# Dimensions


def test_one_dimension_may_be_left_out() -> None:
    """CPython's `memoryview` reads it from `len`."""
    source = Exporter(ndim=1, shape=None, strides=None)
    assert memoryview(dlx.from_dlpack(source)).tolist() == [0, 1, 2, 3, 4, 5]


def test_strides_left_out_mean_row_major() -> None:
    """PEP 3118."""
    tensor = dlx.from_dlpack(Exporter(strides=None))
    assert tensor.strides == (3, 1)
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "dimensions",
    [
        {"ndim": 1, "shape": (2,), "strides": (6,), "len": 8},
        {"ndim": 1, "shape": (2,), "strides": (-3,), "len": 8},
        {"ndim": 2, "shape": (2, 2), "strides": (12, 2), "len": 16},
    ],
    ids=str,
)
def test_a_stride_between_elements_is_refused(dimensions: dict[str, Any]) -> None:
    """R92: strides that are no multiple of the itemsize."""
    with pytest.raises(BufferError, match=r"strides .* itemsize 4"):
        dlx.from_dlpack(Exporter(**dimensions))


@pytest.mark.parametrize(
    "dimensions",
    [
        {"ndim": 1, "shape": (1,), "strides": (3,), "len": 4},
        {"ndim": 2, "shape": (1, 3), "strides": (7, 4), "len": 12},
        {"ndim": 2, "shape": (0, 3), "strides": (1, 2), "len": 0},
    ],
    ids=str,
)
def test_a_stride_without_meaning_need_be_no_multiple(
    dimensions: dict[str, Any],
) -> None:
    """R99: that of a dimension of extent 1, or without elements."""
    tensor = dlx.from_dlpack(Exporter(**dimensions))
    assert tensor.shape == dimensions["shape"]


def test_64_dimensions_are_accepted() -> None:
    """As many as a Python buffer may have."""
    source = Exporter(ndim=64, shape=(1,) * 64, strides=(4,) * 64, len=4)
    assert dlx.from_dlpack(source).ndim == 64


@pytest.mark.parametrize("suboffsets", [(0, -1), (-1, 8), (0, 0)])
def test_suboffsets_are_refused(suboffsets: tuple[int, int]) -> None:
    """PEP 3118: the elements do not lie in one strided piece of memory; R63."""
    with pytest.raises(BufferError, match="suboffsets"):
        dlx.from_dlpack(Exporter(suboffsets=suboffsets))


@pytest.mark.parametrize("kind", [Stored, ByMethod])
def test_a_class_does_not_export_what_has_suboffsets(kind: Any) -> None:
    """R65: each method says why there is no strided memory."""
    holder = kind(Exporter(suboffsets=(0, -1)))
    with pytest.raises(BufferError, match="suboffsets"):
        holder.__dlpack__()
    with pytest.raises(BufferError, match="suboffsets"):
        holder.__dlpack_device__()


def test_suboffsets_that_lead_nowhere_are_accepted() -> None:
    """CPython's `Py_buffer`: a negative one means no indirection."""
    tensor = dlx.from_dlpack(Exporter(suboffsets=(-1, -1)))
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "itemsize": ({"itemsize": 8}, "itemsize 8, .* have itemsize 4"),
    "itemsize 0": ({"itemsize": 0}, "itemsize 0, .* have itemsize 4"),
    "NULL format of four bytes": (
        {"format": None},
        'itemsize 4, .* "B" have itemsize 1',
    ),
    "len too small": ({"len": 20}, "20 bytes"),
    "len too large": ({"len": 28}, "28 bytes"),
    "negative len": ({"len": -24}, "-24 bytes"),
    "len that is no multiple": (
        {"ndim": 1, "shape": None, "strides": None, "len": 22},
        "22 bytes",
    ),
    "negative ndim": ({"ndim": -1}, "ndim is -1"),
    "65 dimensions": ({"ndim": 65}, "65 dimensions"),
    "scalar of six": ({"ndim": 0}, "24 bytes"),
    "NULL shape": ({"shape": None}, "shape is NULL, but ndim is 2"),
    "negative extent": ({"shape": (-2, -3)}, "negative"),
    "overflow": ({"shape": (2**62, 2**62)}, "address space"),
    "overflow to len": ({"shape": (2**62, 16), "len": 0}, "24 bytes|address space"),
    "strides that overflow": ({"strides": (2**63 - 4, 4)}, "address space"),
    "NULL memory": ({"buf": None}, "NULL"),
}


@pytest.mark.parametrize(("fields", "message"), LIES.values(), ids=LIES)
def test_a_lie_is_refused_and_the_buffer_given_back(
    fields: dict[str, Any], message: str
) -> None:
    """R11, R63, R88, R109, R111: fields that contradict each other."""
    source = Exporter(**fields)
    before = sys.getrefcount(source)
    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(source)
    assert (source.exported, source.released) == (1, 1)
    assert sys.getrefcount(source) == before


@given(
    shape=st.lists(st.integers(-1, 4), max_size=3).map(tuple),
    strides=st.lists(st.integers(-9, 9), min_size=3, max_size=3).map(tuple),
    length=st.integers(0, 30),
)
def test_what_is_accepted_is_what_was_said(
    shape: tuple[int, ...], strides: tuple[int, ...], length: int
) -> None:
    """R88, R92, R99: in the middle of memory that any of these strides leads to."""
    around = np.arange(128, dtype="int16")
    strides = strides[: len(shape)]
    source = Exporter(
        buf=around.ctypes.data + 128,
        len=length,
        itemsize=2,
        format=b"h",
        ndim=len(shape),
        shape=shape,
        strides=strides,
    )
    steps = [step for n, step in zip(shape, strides, strict=True) if n > 1]
    negative, empty = any(n < 0 for n in shape), 0 in shape
    honest = length == 2 * int(np.prod(shape))
    if honest and not negative and (empty or all(step % 2 == 0 for step in steps)):
        meant = as_strided(around[64:], shape, strides)
        np.testing.assert_array_equal(dlx.from_dlpack(source).numpy(), meant)
    else:
        with pytest.raises(BufferError):
            dlx.from_dlpack(source)


@pytest.mark.parametrize("scalar", [np.datetime64(1, "s"), np.timedelta64(1, "D")])
def test_a_point_in_time_is_refused_and_no_row_of_bytes(scalar: Any) -> None:
    """R63: NumPy gives a buffer of 8 bytes that does not say of what."""
    with pytest.raises(BufferError, match=r"of type (datetime|timedelta)64; expected"):
        dlx.from_dlpack(scalar)
