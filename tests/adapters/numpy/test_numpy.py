"""NumPy arrays read from their struct: layouts, requests, lifetime.

Their dtypes are in `test_numpy_dtypes.py`, their subclasses in `test_numpy_types.py`.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from support.dlpack_abi import exported
from support.fake_producers import listening
from support.optional_libraries import requires

Array = NDArray[Any]

BYTES = bytes(range(256)) * 16
"""Memory of the drawn arrays; the first element is somewhere in the middle."""


@st.composite
def laid_out(draw: st.DrawFn) -> Array:
    """Draw an array of any strides and any alignment, read-only or not."""
    shape = draw(npst.array_shapes(min_dims=0, max_dims=10, min_side=0, max_side=3))
    strides = [draw(st.integers(-50, 50)) for _ in shape]
    dtype = draw(st.sampled_from(["i1", "u2", "f4", "i8", "c16"]))
    memory = BYTES if draw(st.booleans()) else bytearray(BYTES)
    offset = draw(st.integers(2000, 2007))
    return np.ndarray(shape, dtype, memory, offset, tuple(strides))


def is_in_whole_elements(array: Array) -> bool:
    """Whether all strides that are ever walked are multiples of the itemsize."""
    dimensions = zip(array.shape, array.strides, strict=True)
    walked = [stride for extent, stride in dimensions if extent > 1]
    return array.size == 0 or not any(stride % array.itemsize for stride in walked)


@given(laid_out().filter(is_in_whole_elements))
def test_any_layout_in_whole_elements_comes_in_as_it_is(array: Array) -> None:
    """R88, R92, R95 to R99, R39: what `__array_interface__` says."""
    said = array.__array_interface__
    tensor = dlx.from_dlpack(array)
    assert tensor.shape == said["shape"]
    assert tensor.strides == tuple(step // array.itemsize for step in array.strides)
    assert tensor.dtype == str(array.dtype)
    assert (tensor.data_ptr, tensor.readonly) == (
        (said["data"][0] if array.size else 0),
        said["data"][1],
    )
    np.testing.assert_array_equal(tensor.numpy(), array)


@given(laid_out().filter(is_in_whole_elements))
def test_dlx_and_numpy_read_an_array_alike(array: Array) -> None:
    """R49: shape, dtype and elements, through its `__dlpack__` and without."""
    theirs = np.from_dlpack(array)
    ours = np.from_dlpack(dlx.from_dlpack(array))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    if array.size:  # NumPy makes memory of its own where there is none
        assert ours.flags.writeable == theirs.flags.writeable
    np.testing.assert_array_equal(ours, theirs)


@given(laid_out().filter(is_in_whole_elements))
def test_a_copy_of_any_layout_has_its_elements(array: Array) -> None:
    """R59: contiguous, writable, marked as copied."""
    tensor = dlx.from_dlpack(array, copy=True)
    assert tensor.is_contiguous
    assert tensor.is_copied
    assert not tensor.readonly
    np.testing.assert_array_equal(tensor.numpy(), array)


@given(laid_out().filter(lambda array: not is_in_whole_elements(array)))
def test_strides_between_elements_are_refused_unless_copied(array: Array) -> None:
    """R92, R63: only a copy can be described."""
    for copy in (None, False):
        with pytest.raises(BufferError, match=f"of the itemsize {array.itemsize}"):
            dlx.from_dlpack(array, copy=copy)
    copied = np.asarray(dlx.from_dlpack(array, copy=True))
    np.testing.assert_array_equal(copied, array, strict=True)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (0, 2), (2, 0), (0,), (1,)])
def test_strides_that_are_never_walked_carry_no_meaning(shape: tuple[int, ...]) -> None:
    """R99: neither where an extent is 1 nor where there are no elements."""
    strides = tuple(3 if extent < 2 or 0 in shape else 4 for extent in shape)
    array: Array = np.ndarray(shape, "f4", bytearray(64), 8, strides)
    tensor = dlx.from_dlpack(array)
    assert tensor.shape == shape
    assert tensor.numpy().tolist() == array.tolist()


@pytest.mark.parametrize("ndim", [0, 1, 7, 8, 9, 10, 32])
def test_an_array_may_have_as_many_dimensions_as_numpy_allows(ndim: int) -> None:
    """R88: extents of 2 up to ten dimensions, then of 1."""
    shape = (1,) * max(ndim - 10, 0) + (2,) * min(ndim, 10)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).T
    tensor = dlx.from_dlpack(array)
    assert tensor.shape == array.shape
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_an_array_without_elements_has_no_address() -> None:
    """R93: though NumPy's has."""
    array = np.zeros((0, 3))
    assert array.ctypes.data != 0
    assert dlx.from_dlpack(array).data_ptr == 0


def test_a_read_only_array_is_exported_as_read_only() -> None:
    """R39, R42: through dlx to a capsule."""
    array = np.arange(3)
    array.flags.writeable = False
    assert exported(dlx.from_dlpack(array)).flags == 1


# What the caller asks for


@pytest.mark.parametrize("device", [None, "cpu", (1, 0)])
@pytest.mark.parametrize("stream", [None, -1])
@pytest.mark.parametrize("copy", [None, False])
def test_what_asks_for_nothing_shares_the_memory(
    device: Any, stream: int | None, copy: bool | None
) -> None:
    """R49, R56, R71: the CPU's name, no stream, no copy."""
    array = np.arange(3)
    tensor = dlx.from_dlpack(array, device=device, stream=stream, copy=copy)
    assert tensor.data_ptr == array.ctypes.data
    assert not tensor.is_copied


def test_a_stream_is_refused() -> None:
    """R70: the CPU has none."""
    with pytest.raises(BufferError, match="cpu has no streams"):
        dlx.from_dlpack(np.arange(3), stream=1)


@pytest.mark.parametrize("copy", [None, True])
def test_another_device_is_not_asked_for(copy: bool | None) -> None:
    """R57, R62: NumPy moves nothing, and dlx does it only with a driver."""
    kind = listening(np.ndarray)
    array = np.arange(3).view(kind)
    kind.heard.clear()
    with pytest.raises(BufferError, match=r"does not move it to cuda:0: the driver"):
        dlx.from_dlpack(array, device="cuda:0", copy=copy)
    # Once, for whose it is.
    assert kind.heard == ["__dlpack__", "mask"]


def test_another_device_without_a_copy_is_refused_as_a_copy() -> None:
    """R58: it is a CopyRefused."""
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(np.arange(3), device="cuda:0", copy=False)


# Lifetime


@pytest.mark.parametrize("base", [np.ndarray, listening(np.ndarray)])
def test_the_array_lives_as_long_as_what_was_made_of_it(base: type[Any]) -> None:
    """R15, R17: one reference, until the last export dies."""
    array = np.arange(3).view(base)
    alive, count = weakref.ref(array), sys.getrefcount(array)
    tensor = dlx.from_dlpack(array)
    assert sys.getrefcount(array) == count + 1
    del array
    assert alive() is not None
    again = np.from_dlpack(tensor)
    del tensor
    assert again.tolist() == [0, 1, 2]
    del again
    assert alive() is None


@pytest.mark.parametrize(
    "array",
    [np.zeros(3, ">i8"), np.zeros(3, object), np.zeros(3, "i1,i4")["f1"]],
    ids=["byte order", "object", "strides"],
)
def test_a_refused_array_is_let_go(array: Array) -> None:
    """R21: no reference to it or its dtype is left."""
    count = sys.getrefcount(array), sys.getrefcount(array.dtype)
    for _ in range(10):
        with pytest.raises(BufferError):
            dlx.from_dlpack(array)
    assert (sys.getrefcount(array), sys.getrefcount(array.dtype)) == count


def test_an_array_cannot_be_resized_under_a_tensor() -> None:
    """R15: NumPy counts the references, and so dlx's."""
    array = np.arange(3)
    tensor = dlx.from_dlpack(array)
    with pytest.raises(ValueError, match="resize"):
        array.resize(1000)
    del tensor
    array.resize(1000)


def test_an_array_of_another_shape_later_changes_nothing() -> None:
    """R100: the tensor has a copy of shape and strides."""
    array = np.arange(6)
    tensor = dlx.from_dlpack(array)
    with warnings.catch_warnings(action="ignore"):
        array.shape = (2, 3)
    assert (tensor.shape, tensor.strides) == ((6,), (1,))


@pytest.mark.parametrize("copy", [None, False, True])
def test_array_shares_unless_a_copy_is_asked_for(copy: bool | None) -> None:
    """NumPy, `__array__`."""
    a = np.arange(3.0)
    made = dlx.from_dlpack(a).__array__(copy=copy)
    assert made.tolist() == [0, 1, 2]
    assert np.shares_memory(made, a) is not bool(copy)


def test_array_of_another_dtype_is_a_copy() -> None:
    """NumPy, `__array__`: which `copy=False` rules out."""
    t = dlx.from_dlpack(np.arange(3.0))
    assert t.__array__(np.dtype("i4")).dtype == "i4"
    assert t.__array__(np.float64, copy=False).ctypes.data == t.data_ptr
    with pytest.raises(ValueError, match="copy=False, but float64 is not int32"):
        t.__array__(np.dtype("i4"), copy=False)


def test_pandas_takes_a_tensor_as_an_array() -> None:
    """docs/convert.md: not as a sequence of tensors."""
    pd = requires("pandas")
    t = dlx.from_dlpack(np.arange(3.0))
    assert pd.Series(t).dtype == "float64"
    assert pd.DataFrame({"a": t})["a"].tolist() == [0, 1, 2]
