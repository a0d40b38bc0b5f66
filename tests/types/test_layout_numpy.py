"""Strided NumPy arrays of every shape: through dlx, and back."""

from __future__ import annotations

import dlx
import numpy as np
from hypothesis import given
from support.array_views import views


def memory(array: np.ndarray) -> tuple[int, tuple[int, ...], bool] | None:
    """Say where the elements are and whether they may be written, if there are any."""
    if array.size == 0:
        return None
    return array.ctypes.data, array.strides, array.flags.writeable


@given(views())
def test_a_strided_numpy_view_comes_in_as_it_is(view: np.ndarray) -> None:
    """R89, R92, R95: address, shape, strides in elements, and what that leads to."""
    tensor = dlx.from_dlpack(view)
    assert tensor.shape == view.shape
    assert tensor.strides == tuple(stride // view.itemsize for stride in view.strides)
    assert tensor.data_ptr == (view.ctypes.data if view.size else 0)
    np.testing.assert_array_equal(tensor.numpy(), view)


@given(views())
def test_a_strided_numpy_view_goes_out_as_it_came_in(view: np.ndarray) -> None:
    """R89, R92, R95: what NumPy reads from dlx is what NumPy gave."""
    back = np.from_dlpack(dlx.from_dlpack(view))
    assert (back.dtype, back.shape) == (view.dtype, view.shape)
    assert memory(back) == memory(view)
    np.testing.assert_array_equal(back, view)


@given(views())
def test_a_copy_of_a_strided_numpy_view_is_compact(view: np.ndarray) -> None:
    """R47, R59: with the elements in row-major order."""
    tensor = dlx.from_dlpack(view, copy=True)
    assert tensor.is_contiguous
    assert tensor.size == 0 or tensor.data_ptr != view.ctypes.data
    np.testing.assert_array_equal(tensor.numpy(), view)
