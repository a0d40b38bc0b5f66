"""NumPy's array interface that dlx takes, whichever way it comes."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from support.array_views import views
from support.fake_array_interface import (
    ByDict,
    ByStruct,
)
from support.fake_buffer import Exporter

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
    """R49: a write to the tensor is seen in the array."""
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
    """R63, R101: the error says what was found and what is accepted."""
    with pytest.raises(BufferError, match=r"(typestr|typekind) .*expected b1"):
        dlx.from_dlpack(show(source))


@either
def test_a_stride_between_elements_is_refused(show: Callable[[Any], Any]) -> None:
    """R92: a stride of 5 bytes for elements of 4."""
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
    """R57, R58, R70: another device, or a stream, of memory on the CPU."""
    with pytest.raises(error) as caught:
        dlx.from_dlpack(show(np.zeros(3)), **asked)
    assert type(caught.value) is error


@either
def test_a_copy_is_a_copy(show: Callable[[Any], Any]) -> None:
    """R47, R59: it keeps its values when the source changes."""
    source = np.arange(6.0).reshape(2, 3).T
    tensor = dlx.from_dlpack(show(source), copy=True)
    source[:] = 0
    assert tensor.is_copied
    assert tensor.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]


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
@pytest.mark.parametrize(
    "answer", [None, 5, [3], "dict", pytest.param(object(), id="object")], ids=repr
)
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
    """R60: the very object that was raised."""
    with pytest.raises(type(error)) as caught:
        dlx.from_dlpack(raising(name, error))
    assert caught.value is error


@pytest.mark.parametrize("name", NAMES)
def test_a_property_that_is_not_there_is_no_protocol(name: str) -> None:
    """R61: a property that raises AttributeError counts as absent."""
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
    """docs/design.md, The way in: rung 5: buffer, struct, dict."""
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
    """R15, S11: and as long as what the tensor was exported to."""
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
