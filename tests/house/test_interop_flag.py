"""The read-only flag between dlx and real libraries, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict
import dlx
import numpy as np
import numpy.typing as npt
import pyarrow  # type: ignore[import-untyped]
import pytest
import tvm_ffi
from support.optional_libraries import take_view

Array = npt.NDArray[Any]


def frozen() -> Array:
    """Array that must not be written."""
    array = np.arange(6.0)
    array.flags.writeable = False
    return array


def is_writable_array(array: Array) -> bool:
    """Look at NumPy's flag."""
    return array.flags.writeable


WRITABLE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], bool]]] = {
    "np.from_dlpack": (np.from_dlpack, lambda array: array.flags.writeable),
    "np.asarray": (np.asarray, lambda array: array.flags.writeable),
    "memoryview": (memoryview, lambda view: not view.readonly),
    "Tensor.numpy": (
        lambda tensor: tensor.numpy(),
        lambda array: array.flags.writeable,
    ),
    "array_api_strict": (
        array_api_strict.from_dlpack,
        lambda array: is_writable_array(np.from_dlpack(array)),
    ),
    "pyarrow": (
        pyarrow.Array.from_dlpack,
        lambda array: array.buffers()[1].is_mutable,
    ),
    "cuda.core": (take_view, lambda view: not view.readonly),
}


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize(("take", "is_writable"), WRITABLE.values(), ids=WRITABLE)
def test_a_library_learns_what_must_not_be_written(
    take: Callable[[Any], Any], is_writable: Callable[[Any], bool], writable: bool
) -> None:
    """R39, R42: libraries that know read-only arrays."""
    tensor = dlx.from_dlpack(np.arange(6.0) if writable else frozen())
    assert is_writable(take(tensor)) is writable


@pytest.mark.parametrize(
    ("make", "readonly"),
    [
        (lambda: np.arange(6.0), False),
        (frozen, True),
        (lambda: np.broadcast_to(1.0, (2, 3)), True),
        (lambda: array_api_strict.from_dlpack(frozen()), True),
        (lambda: pyarrow.array([1, 2, 3]), True),
        (lambda: take_view(np.arange(6.0)), False),
        (lambda: take_view(frozen()), True),
        (lambda: tvm_ffi.from_dlpack(np.arange(6.0)), False),
    ],
    ids=[
        "numpy",
        "frozen",
        "broadcast",
        "strict",
        "arrow",
        "view",
        "frozen view",
        "tvm",
    ],
)
def test_dlx_learns_what_must_not_be_written(
    make: Callable[[], Any], readonly: bool
) -> None:
    """R42: from the arrays of each library."""
    assert dlx.from_dlpack(make()).readonly is readonly


def test_read_only_goes_through_a_chain_of_libraries() -> None:
    """R42: Arrow's memory is immutable to the last of them."""
    tensor = dlx.from_dlpack(pyarrow.array([1, 2, 3]))
    array = np.from_dlpack(dlx.from_dlpack(take_view(dlx.from_dlpack(tensor))))
    assert not array.flags.writeable
    assert array.tolist() == [1, 2, 3]
