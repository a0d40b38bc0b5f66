"""`convert` to NumPy: arrays made through NumPy's own C functions."""

from __future__ import annotations

import gc
import math
import re
import weakref
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from support.fake_producers import Producer
from support.fake_table import table_class
from support.optional_libraries import requires
from support.python_process import run_python

Array = NDArray[Any]

NUMBERS = np.typecodes["AllInteger"] + "?efdFD"


@st.composite
def tensors(draw: st.DrawFn) -> tuple[Array, dlx.Tensor]:
    """Draw an array of any layout, and a tensor that is described on its own."""
    shape = draw(npst.array_shapes(min_dims=0, max_dims=10, min_side=0, max_side=3))
    dtype = np.dtype(draw(st.sampled_from(sorted(NUMBERS))))
    steps = [draw(st.integers(-9, 9)) for _ in shape]
    memory = np.frombuffer(bytearray(range(256)) * 32, np.uint8)
    if dtype.kind == "b":
        memory = memory % 2
    start = 4096
    array = np.ndarray(
        shape, dtype, memory, start, tuple(step * dtype.itemsize for step in steps)
    )
    tensor = dlx.from_pointer(
        memory.ctypes.data + start,
        shape,
        dtype,
        strides=steps,
        owner=memory,
        readonly=draw(st.booleans()),
    )
    return array, tensor


@given(tensors())
def test_an_array_of_any_layout_is_what_the_tensor_is(
    drawn: tuple[Array, dlx.Tensor],
) -> None:
    """R88 to R99, R39: dtype, extents, strides, address, flags, elements."""
    array, tensor = drawn
    made = dlx.convert(tensor, np.ndarray)
    assert type(made) is np.ndarray
    assert (made.dtype, made.shape) == (array.dtype, array.shape)
    assert made.flags.writeable is not tensor.readonly
    assert id(made.base) == id(tensor)
    if array.size:
        assert made.strides == array.strides
        assert made.ctypes.data == tensor.data_ptr
        for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "ALIGNED"):
            assert made.flags[flag] == array.flags[flag]
    assert not made.flags.owndata
    np.testing.assert_array_equal(made, array)


@given(tensors())
def test_numpy_method_and_convert_agree(drawn: tuple[Array, dlx.Tensor]) -> None:
    _, tensor = drawn
    ours, other = dlx.convert(tensor, np.ndarray), tensor.numpy()
    assert (ours.dtype, ours.shape) == (other.dtype, other.shape)
    if ours.size:  # NumPy makes memory of its own where there is none
        assert ours.flags.writeable == other.flags.writeable
    np.testing.assert_array_equal(ours, other)


ML = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int4", "uint4"]


@pytest.mark.parametrize("name", ML)
def test_the_dtypes_of_ml_dtypes_are_kept(name: str) -> None:
    array = np.ones(3, getattr(ml_dtypes, name))
    made = dlx.convert(dlx.from_dlpack(array), np)
    assert made.dtype == array.dtype
    assert made.ctypes.data == array.ctypes.data


def test_bfloat16_of_torch() -> None:
    torch = requires("torch")
    tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    made = dlx.convert(tensor, np.ndarray)
    assert made.dtype == ml_dtypes.bfloat16
    assert made.astype("f4").tolist() == [1.5, -2.0]
    assert made.ctypes.data == tensor.data_ptr()


@pytest.mark.parametrize("name", ["float32x4", "float4_e2m1fn"])
def test_what_numpy_cannot_show_is_a_buffer_error(name: str) -> None:
    with pytest.raises(BufferError, match=name):
        dlx.convert(dlx.from_pointer(256, (2,), name), np.ndarray)


def test_memory_elsewhere_is_a_buffer_error_that_names_the_way() -> None:
    tensor = dlx.from_pointer(256, (2,), "float32", device="cuda:0", stream=1)
    with pytest.raises(BufferError, match=r"on cuda:0, .*device='cpu'"):
        dlx.convert(tensor, np.ndarray)


def test_writes_are_seen_by_the_producer() -> None:
    torch = requires("torch")
    tensor = torch.zeros(3)
    dlx.convert(tensor, np.ndarray)[1] = 5
    assert tensor.tolist() == [0, 5, 0]


def test_the_base_of_an_array_is_a_tensor_that_consumers_share() -> None:
    """R7: none of them frees the memory under the array."""
    producer = table_class()()
    made = dlx.convert(producer, np.ndarray)
    assert isinstance(made.base, dlx.Tensor)
    np.from_dlpack(made.base)
    assert producer.deleted == 0
    del made
    assert producer.deleted == 1


def test_views_keep_the_memory() -> None:
    torch = requires("torch")
    tensor = torch.arange(4)
    reference = weakref.ref(tensor)
    view = dlx.convert(tensor, np.ndarray)[1:]
    del tensor
    gc.collect()
    assert view.tolist() == [1, 2, 3]
    del view
    assert reference() is None


class Sub(np.ndarray):
    """A subclass without anything of its own."""


class Vetoing(np.ndarray[Any, Any]):
    """An array that no other becomes."""

    def __array_finalize__(self, given: Any) -> None:
        """Refuse."""
        raise ValueError("it only vetoes")


@pytest.mark.parametrize("to", [Sub, np.matrix, np.recarray])
def test_a_subclass_of_ndarray_is_a_view(to: type[Array]) -> None:
    tensor = dlx.from_dlpack(np.ones((2, 3)))
    made = dlx.convert(tensor, to)
    assert type(made) is to
    assert made.ctypes.data == tensor.data_ptr


@pytest.mark.parametrize(
    ("to", "why"), [(np.matrix, "too large to be a matrix"), (Vetoing, "only vetoes")]
)
def test_a_subclass_that_takes_no_such_array_refuses_it(to: Any, why: str) -> None:
    """As any library does."""
    name = f"{to.__module__}.{to.__qualname__}"
    message = f"^{re.escape(name)} does not accept the int64 tensor: .*{why}"
    with pytest.raises(BufferError, match=message) as caught:
        dlx.convert(np.zeros((2, 2, 2), "i8"), to)
    assert type(caught.value.__cause__) is ValueError


def test_an_instance_of_a_subclass_becomes_a_plain_array() -> None:
    """`*` of a matrix is another product."""
    matrix = np.ones((2, 2)).view(np.matrix)
    made = dlx.convert(matrix, np.ndarray)
    assert type(made) is np.ndarray
    assert np.shares_memory(made, matrix)


def test_64_dimensions() -> None:
    tensor = dlx.from_pointer(256, (1,) * 64, "float32")
    if int(np.__version__.split(".")[0]) >= 2:
        assert dlx.convert(tensor, np).ndim == 64
    else:
        with pytest.raises(BufferError, match="64 dimensions"):
            dlx.convert(tensor, np)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_extents_of_0_and_1(shape: tuple[int, ...]) -> None:
    """R93: nothing is read where there is nothing."""
    torch = requires("torch")
    made = dlx.convert(torch.ones(shape), np.ndarray)
    assert made.shape == shape
    assert made.sum() == math.prod(shape)


def test_numpy_that_is_not_as_expected_is_asked_by_its_python_functions() -> None:
    """Without the table of C functions all else is the same."""
    code = """
import sys, numpy as np, dlx
for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
    if name in sys.modules:
        sys.modules[name] = object()
tensor = dlx.from_dlpack(np.arange(3.0))
made = dlx.convert(tensor, np.ndarray)
assert made.tolist() == [0, 1, 2] and made.base is not tensor, made.base
"""
    assert run_python(code) == (0, "", "")


def test_the_c_functions_of_numpy_are_used() -> None:
    """The base of an array is the tensor itself, as no function of Python's does it."""
    tensor = dlx.from_dlpack(np.arange(3.0))
    made = dlx.convert(tensor, np.ndarray)
    assert id(made.base) == id(tensor)


def test_pinned_memory_is_memory_of_the_cpu() -> None:
    """H11: `cuda_host` is read where it is, as NumPy itself does."""
    producer = Producer(device=(3, 0))
    tensor = dlx.from_dlpack(producer)
    for array in (
        dlx.convert(producer, np.ndarray),
        tensor.numpy(),
        np.asarray(tensor),
    ):
        assert array.ctypes.data == producer.data
        assert array.shape == tensor.shape


class Labelled(np.ndarray):
    """Carries a label over, as astropy's Quantity does its unit."""

    label = ""

    def __array_finalize__(self, other: Any) -> None:
        """Take the label."""
        self.label = getattr(other, "label", "")


def test_a_copy_of_a_subclass_keeps_its_attributes() -> None:
    """As a cast does; the memory is another."""
    x = np.arange(3.0).view(Labelled)
    x.label = "km"
    made = dlx.convert(x, Labelled, copy=True)
    assert (type(made), made.label, made.tolist()) == (Labelled, "km", [0, 1, 2])
    assert not np.shares_memory(made, x)
    assert dlx.convert(x, Labelled, dtype="float32").label == "km"


def test_a_copy_of_a_subclass_is_one_whatever_its_class_says() -> None:
    """A class may call itself its copy."""

    class Own(np.ndarray):
        def copy(self, order: Any = "C") -> Any:
            return self

    x = np.arange(3.0).view(Own)
    made = dlx.convert(x, Own, copy=True)
    assert (type(made), made.tolist()) == (Own, [0, 1, 2])
    assert not np.shares_memory(made, x)


@pytest.mark.parametrize("dtype", ["V0", []])
@pytest.mark.parametrize("shape", [2, 0, (2, 0)])
def test_elements_without_bytes_are_refused(dtype: Any, shape: Any) -> None:
    """As of JAX's float0: no division by their size."""
    x = np.zeros(shape, dtype)
    for to in (np, dlx.Tensor):
        for options in ({}, {"copy": True}, {"dtype": "float32"}):
            if to is np and not options:
                continue  # it is one already
            with pytest.raises(BufferError, match="elements of type void"):
                dlx.convert(x, to, **options)
