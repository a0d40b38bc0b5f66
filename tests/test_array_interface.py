"""NumPy's array interface that dlx takes, as a dict and as a C struct."""

from __future__ import annotations

import array
import ctypes
import gc
import sys
import weakref
from collections.abc import Callable
from ctypes import (
    POINTER,
    addressof,
    c_char,
    c_int,
    c_ssize_t,
    c_void_p,
)
from typing import Any

import dlx
import numpy as np
import pytest
from dlpack_abi import for_ever, new_capsule
from fake_buffer import Exporter
from hypothesis import given
from hypothesis import strategies as st
from test_layout_numpy import views

KINDS = {
    "|b1": "bool",
    "|i1": "int8",
    "<i2": "int16",
    "<i4": "int32",
    "<i8": "int64",
    "|u1": "uint8",
    "<u2": "uint16",
    "<u4": "uint32",
    "<u8": "uint64",
    "<f2": "float16",
    "<f4": "float32",
    "<f8": "float64",
    "<c8": "complex64",
    "<c16": "complex128",
}


class ByDict:
    """An array that has nothing but `__array_interface__`, some of it changed."""

    def __init__(self, array: Any, **changed: Any) -> None:
        """Show `array`; what is changed to ... is left out."""
        self.array = array
        interface = array.__array_interface__ | changed
        self.interface = {
            key: value for key, value in interface.items() if value is not ...
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The dict."""
        return self.interface


class ByStruct:
    """An array that has nothing but `__array_struct__`."""

    def __init__(self, array: Any) -> None:
        """Show `array`."""
        self.array = array

    @property
    def __array_struct__(self) -> Any:
        """Its capsule."""
        return self.array.__array_struct__


class PyArrayInterface(ctypes.Structure):
    """`PyArrayInterface`."""

    _fields_ = (
        *((name, c_int) for name in ("two", "nd")),
        ("typekind", c_char),
        *((name, c_int) for name in ("itemsize", "flags")),
        *((name, POINTER(c_ssize_t)) for name in ("shape", "strides")),
        *((name, c_void_p) for name in ("data", "descr")),
    )


ALIGNED, NOTSWAPPED, WRITEABLE = 0x100, 0x200, 0x400
MEMORY = for_ever(np.arange(6, dtype="f4"))


class Struct:
    """Something with a struct of its own: by default `MEMORY` in two rows of three."""

    def __init__(self, *, name: bytes | None = None, **fields: Any) -> None:
        """Say `fields`; dimensions are tuples of bytes, None for NULL."""
        usual = {
            "two": 2,
            "nd": 2,
            "typekind": b"f",
            "itemsize": 4,
            "flags": ALIGNED | NOTSWAPPED | WRITEABLE,
            "shape": (2, 3),
            "strides": (12, 4),
            "data": MEMORY.ctypes.data,
        }
        self.struct = PyArrayInterface(
            **{
                key: (c_ssize_t * len(value))(*value) if type(value) is tuple else value
                for key, value in (usual | fields).items()
                if value is not None
            }
        )
        self.name = name

    @property
    def __array_struct__(self) -> Any:
        """A capsule around the struct."""
        if self.name is None:
            return nameless_capsule(addressof(self.struct), None, None)
        return new_capsule(addressof(self.struct), self.name)


nameless_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_void_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)

either = pytest.mark.parametrize("show", [ByDict, ByStruct])


@either
@pytest.mark.parametrize("typestr", KINDS)
def test_the_type_of_the_elements_is_numpys(
    typestr: str, show: Callable[[Any], Any]
) -> None:
    """NumPy's array interface; R102 to R104."""
    source = np.ones((2, 3), typestr)
    tensor = dlx.from_dlpack(show(source))
    assert tensor.dtype == KINDS[typestr]
    assert tensor.data_ptr == source.ctypes.data
    np.testing.assert_array_equal(tensor.numpy(), source)


@either
@given(view=views())
def test_a_strided_array_comes_in_as_it_is(
    show: Callable[[Any], Any], view: np.ndarray
) -> None:
    """R92, R95, R97 to R99; R39 for the read-only flag."""
    tensor = dlx.from_dlpack(show(view))
    assert tensor.shape == view.shape
    assert tensor.data_ptr == (view.ctypes.data if view.size else 0)
    assert tensor.readonly == (not view.flags.writeable)
    assert tensor.device == "cpu"
    np.testing.assert_array_equal(tensor.numpy(), view)


@either
def test_the_memory_is_shared(show: Callable[[Any], Any]) -> None:
    """R49."""
    source = np.zeros(3)
    np.from_dlpack(dlx.from_dlpack(show(source)))[1] = 7
    assert source.tolist() == [0, 7, 0]


@either
@pytest.mark.parametrize(
    "source",
    [
        *(np.zeros(3, kind) for kind in (">i4", ">f8", ">c8")),
        *(np.zeros(3, kind) for kind in ("M8[s]", "m8[s]", "U2", "S2", "V3", "O", "g")),
        np.zeros(3, [("x", "<i4"), ("y", "<f4")]),
    ],
    ids=str,
)
def test_another_type_of_element_is_refused(
    source: Any, show: Callable[[Any], Any]
) -> None:
    """R63, R101."""
    with pytest.raises(BufferError, match=r"(typestr|typekind) .*accepted are b1"):
        dlx.from_dlpack(show(source))


@either
def test_a_stride_between_elements_is_refused(show: Callable[[Any], Any]) -> None:
    """R92."""
    source = np.zeros(3, [("x", "i1"), ("y", "i4")])["y"]
    with pytest.raises(BufferError, match=r"strides \[5\] .* itemsize 4"):
        dlx.from_dlpack(show(source))


@either
def test_memory_that_is_not_aligned_is_accepted(show: Callable[[Any], Any]) -> None:
    """R96: nobody may rely on alignment."""
    source = np.frombuffer(bytearray(b"\0\1\0\0\0\2\0\0\0"), "<i4", offset=1)
    assert dlx.from_dlpack(show(source)).numpy().tolist() == [1, 2]


@either
@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"device": "cuda:0"}, BufferError),
        ({"device": "cuda:0", "copy": False}, dlx.CopyRefused),
        ({"stream": 1}, BufferError),
    ],
)
def test_what_cannot_be_had_is_refused(
    asked: dict[str, Any], error: type[Exception], show: Callable[[Any], Any]
) -> None:
    """R57, R58, R70."""
    with pytest.raises(error) as caught:
        dlx.from_dlpack(show(np.zeros(3)), **asked)
    assert type(caught.value) is error


@either
def test_a_copy_is_a_copy(show: Callable[[Any], Any]) -> None:
    """R47, R59."""
    source = np.arange(6.0).reshape(2, 3).T
    tensor = dlx.from_dlpack(show(source), copy=True)
    source[:] = 0
    assert tensor.is_copied
    assert tensor.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]


# What the dict says

MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "version 2": ({"version": 2}, "version 2, accepted is 3"),
    "version 4": ({"version": 4}, "version 4, accepted is 3"),
    "version of another type": ({"version": "3"}, "version '3', accepted is 3"),
    "mask": ({"mask": np.ones(3)}, "mask .*, accepted is none"),
    "no order": ({"typestr": "f8"}, 'typestr "f8"'),
    "no size": ({"typestr": "<f"}, 'typestr "<f"'),
    "no typestr": ({"typestr": ""}, 'typestr ""'),
    "order left open": ({"typestr": "|f8"}, r'typestr "\|f8"'),
    "odd size": ({"typestr": "<i3"}, 'typestr "<i3"'),
    "signed size": ({"typestr": "<f+8"}, r'typestr "<f\+8"'),
    "huge size": ({"typestr": "<f99999999999999999999"}, "typestr"),
    "not ASCII": ({"typestr": "\u20acf8"}, "typestr"),
    "bits": ({"typestr": "|t1"}, "typestr"),
    "typestr of another type": ({"typestr": b"<f8"}, "typestr b'<f8', accepted is"),
    "fields": ({"descr": [("x", "<f4"), ("y", "<f4")]}, "descr .*accepted is none"),
    "a field": ({"descr": [("x", "<f8")]}, "descr .*accepted is none"),
    "shape of another type": ({"shape": 3}, "shape 3, accepted is a tuple"),
    "shape of floats": ({"shape": (3.0,)}, "shape .*, accepted is a tuple"),
    "shape beyond 64 bits": ({"shape": (2**64,)}, "shape .*, accepted is a tuple"),
    "negative extent": ({"shape": (-3,)}, "negative"),
    "overflow": ({"shape": (2**62,), "strides": None}, "address space"),
    "65 dimensions": ({"shape": (1,) * 65}, "65 dimensions"),
    "more strides": ({"strides": (8, 8)}, r"strides \[8, 8\] for shape \[3\]"),
    "fewer strides": ({"strides": ()}, r"strides \[\] for shape \[3\]"),
    "strides of another type": ({"strides": "8"}, "strides '8', accepted is"),
    "three data": ({"data": (8, False, 0)}, "data .*, accepted is"),
    "no address": ({"data": ("8", False)}, "data .*, accepted is"),
    "negative address": ({"data": (-8, False)}, "data .*, accepted is"),
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
    with pytest.raises(BufferError, match=f'has no "{key}", accepted is'):
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
    """R39."""
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
        with pytest.raises(BufferError, match="of a buffer of 40"):
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
    """R8, R15, docs/safety.md S10."""
    memory = Exporter()
    tensor = dlx.from_dlpack(by_buffer(memory, (12,)))
    assert (memory.exported, memory.released) == (1, 0)
    del tensor
    assert (memory.exported, memory.released) == (1, 1)


def test_a_refused_buffer_is_given_back() -> None:
    """R11."""
    memory = Exporter()
    with pytest.raises(BufferError, match="of a buffer of 24"):
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
    """R39."""
    assert dlx.from_dlpack(Struct(flags=NOTSWAPPED)).readonly


@pytest.mark.parametrize("flags", [0, NOTSWAPPED])
def test_bytes_have_no_order(flags: int) -> None:
    """R101."""
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
    "between elements": ({"strides": (12, 3)}, "itemsize 4"),
    "NULL data": ({"data": None}, "NULL"),
    "a name": ({"name": b"dltensor"}, 'named "dltensor"; accepted is one without'),
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


# Both, and neither


def answering(name: str, answer: Any) -> Any:
    """Make an object with that attribute."""
    return type("Answering", (), {name: answer})()


def raising(name: str, error: BaseException) -> Any:
    """Make an object with a property that raises."""

    def fail(self: Any) -> None:
        raise error

    return answering(name, property(fail))


NAMES = ["__array_struct__", "__array_interface__"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("answer", [None, 5, [3], "dict", object()], ids=repr)
def test_an_attribute_of_another_type_is_a_type_error(name: str, answer: Any) -> None:
    """NumPy's array interface."""
    with pytest.raises(TypeError, match=rf"{name} of .*Answering is \w+, not a "):
        dlx.from_dlpack(answering(name, answer))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "error",
    [BufferError("not on the CPU"), RuntimeError("broken"), KeyboardInterrupt()],
)
def test_the_exception_of_a_property_passes(name: str, error: BaseException) -> None:
    """R60."""
    with pytest.raises(type(error)) as caught:
        dlx.from_dlpack(raising(name, error))
    assert caught.value is error


@pytest.mark.parametrize("name", NAMES)
def test_a_property_that_is_not_there_is_no_protocol(name: str) -> None:
    """R61."""
    with pytest.raises(AttributeError, match=f"has no __dlpack__; .*{name}"):
        dlx.from_dlpack(raising(name, AttributeError("absent")))


class Everything(ByStruct, ByDict, Exporter):
    """All that NumPy asks for, with a number that says which it was."""

    def __init__(self) -> None:
        """Show 1 element by struct, 2 by dict, 2 rows of 3 by buffer."""
        Exporter.__init__(self)
        ByDict.__init__(self, np.zeros(2))
        ByStruct.__init__(self, np.zeros(1))


def test_the_order_is_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/design.md, rung 5: buffer, struct, dict."""
    everything = Everything()
    assert np.asarray(everything).shape == dlx.from_dlpack(everything).shape == (2, 3)
    rest = type("Rest", (ByStruct, ByDict), {})(np.zeros(1))
    rest.interface = np.zeros(2).__array_interface__
    assert np.asarray(rest).shape == dlx.from_dlpack(rest).shape == (1,)
    monkeypatch.delattr(ByStruct, "__array_struct__")
    assert np.asarray(rest).shape == dlx.from_dlpack(rest).shape == (2,)


# Lifetime


@either
def test_the_object_lives_as_long_as_the_tensor(show: Callable[[Any], Any]) -> None:
    """R15, docs/safety.md S11."""
    source = show(np.arange(3.0))
    alive = weakref.ref(source)
    export = np.from_dlpack(dlx.from_dlpack(source))
    del source
    gc.collect()
    assert alive() is not None
    assert export.tolist() == [0, 1, 2]
    del export
    assert alive() is None


@either
def test_references_are_given_back(show: Callable[[Any], Any]) -> None:
    """R8, R11: after an import, and after a refusal."""
    source, refused = np.arange(3.0), np.zeros(3, "U1")
    objects = [show(source), show(refused), source, refused]
    before = [sys.getrefcount(each) for each in objects]
    dlx.from_dlpack(objects[0])
    with pytest.raises(BufferError):
        dlx.from_dlpack(objects[1])
    assert [sys.getrefcount(each) for each in objects] == before
