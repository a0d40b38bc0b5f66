"""pyarrow's arrays of tensors: what its own import and export get wrong."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

KIND = pa.FixedShapeTensorArray
NUMBERS = np.arange(48.0).reshape(4, 3, 4)


def rows(values: list[Any]) -> Any:
    """Make an array of two by two tensors from rows of four numbers."""
    storage = pa.array(values, pa.list_(pa.int32(), 4))
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 2])
    return pa.ExtensionArray.from_storage(kind, storage)


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("to", [dlx.Tensor, np.ndarray], ids=["dlx", "numpy"])
def test_a_null_inside_a_row_is_refused(to: type, times: int) -> None:
    """pyarrow exports the number beneath it.

    An array without nulls comes in, also if dlx asks its type another way by then.
    """
    whole = rows([[1, 2, 3, 4], [5, 6, 7, 8]])
    made: Any = None
    for _ in range(times):
        made = np.asarray(dlx.convert(whole, to))
    assert made.tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    with pytest.raises(BufferError, match=r"nulls inside its rows \(2\).*fill_null"):
        dlx.convert(rows([[1, 2, 3, 4], [None, 6, 7, None]]), to)


def test_a_null_outside_of_a_slice_does_not_count() -> None:
    """The rows of the slice have none."""
    sliced = rows([[1, 2, 3, 4], [5, None, 7, 8]])[:1]
    assert dlx.from_dlpack(sliced).numpy().tolist() == [[[1, 2], [3, 4]]]
    with pytest.raises(BufferError, match="nulls inside"):
        dlx.from_dlpack(rows([[1, 2, 3, 4], [5, None, 7, 8]])[1:])


def test_a_row_that_is_null_is_refused() -> None:
    """R60: also in a tree; what it says to pass is taken."""
    x = rows([[1, 2, 3, 4], None])
    with pytest.raises(BufferError, match=r"null \(1\).*pass x\.drop_null\(\)"):
        dlx.convert_tree([x], np)
    assert dlx.from_dlpack(x.drop_null()).tolist() == [[[1, 2], [3, 4]]]


def test_arrays_of_tensors_without_elements_or_dimensions_are_refused() -> None:
    """pyarrow divides by the number of elements, and needs a first dimension.

    Both end the process.
    """
    with pytest.raises(BufferError, match="at least one element"):
        dlx.convert(np.zeros((0, 2, 2)), KIND)
    with pytest.raises(BufferError, match="at least one dimension"):
        dlx.convert(np.array(1.0), KIND)
    made = dlx.convert(np.arange(4.0).reshape(1, 2, 2), KIND)
    assert made.to_numpy_ndarray().tolist() == [[[0, 1], [2, 3]]]


@pytest.mark.parametrize(
    "given",
    [
        NUMBERS[::2],
        NUMBERS[:, ::2],
        NUMBERS[..., 1:3],
        np.broadcast_to(NUMBERS[:, 0, :1], (4, 3)),
        np.lib.stride_tricks.sliding_window_view(NUMBERS[0, 0], 2),
    ],
    ids=["rows", "columns", "inner", "repeated", "overlapping"],
)
def test_elements_that_are_not_beside_each_other_are_copied(given: Any) -> None:
    """pyarrow reads the gaps."""
    assert np.array_equal(dlx.convert(given, KIND).to_numpy_ndarray(), given)
    with pytest.raises(dlx.CopyRefused, match="beside each other"):
        dlx.convert(given, KIND, copy=False)


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1)])
def test_any_order_of_the_inner_dimensions_is_shared(axes: tuple[int, ...]) -> None:
    """pyarrow has a permutation for it."""
    given = NUMBERS.transpose(axes)
    made = dlx.convert(given, KIND, copy=False)
    assert np.array_equal(made.to_numpy_ndarray(), given)
    assert dlx.from_dlpack(made).data_ptr == given.ctypes.data


def test_a_tensor_with_a_permutation_is_refused() -> None:
    """pyarrow exports strides of another shape."""
    permuted = dlx.convert(NUMBERS.transpose(0, 2, 1), KIND)
    with pytest.raises(BufferError, match=r"permutation.*dlx.from_dlpack\(array\)"):
        dlx.from_dlpack(permuted[1])
    assert np.array_equal(dlx.from_dlpack(permuted)[1].numpy(), NUMBERS[1].T)


def test_a_tensor_without_a_permutation_comes_in() -> None:
    """Also if the permutation changes nothing."""
    for array in (dlx.convert(NUMBERS, KIND), rows([[1, 2, 3, 4], [5, 6, 7, 8]])):
        made = dlx.from_dlpack(array[1]).numpy()
        assert np.array_equal(made, array.to_numpy_ndarray()[1])
