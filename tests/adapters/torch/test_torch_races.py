"""torch's tensors whose shape another thread changes: never outside of the storage."""

from __future__ import annotations

import ctypes
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dlx
import numpy as np
import pytest
import tvm_ffi
from support.dlpack_abi import DLTensor, table_of
from support.optional_libraries import requires

pytestmark = pytest.mark.slow

torch = requires("torch")


def seen(tensor: Any) -> tuple[int, ...]:
    """Shape and strides of a `dlx.Tensor`."""
    return (*tensor.shape, *tensor.strides)


def in_numpy(array: Any) -> tuple[int, ...]:
    """Shape, and strides in elements, of an array."""
    return (*array.shape, *(step // array.itemsize for step in array.strides))


def borrowed(tensor: Any) -> tuple[int, ...]:
    """What is lent for a block."""
    with dlx.borrow(tensor) as (view, _):
        return seen(view)


WAYS: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "from_dlpack": lambda x: seen(dlx.from_dlpack(x)),
    "unlike others": lambda x: seen(dlx.from_dlpack(x, device="cpu")),
    "a copy": lambda x: seen(dlx.from_dlpack(x, copy=True)),
    "convert to NumPy": lambda x: in_numpy(dlx.convert(x, np.ndarray)),
    "convert to tvm-ffi": lambda x: seen(
        dlx.from_dlpack(dlx.convert(x, tvm_ffi.Tensor))
    ),
    "convert_tree": lambda x: in_numpy(dlx.convert_tree([x], np.ndarray)[0]),
    "borrow": borrowed,
}
SHARING = {name: way for name, way in WAYS.items() if name != "a copy"}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@contextmanager
def half_changed(tensor: Any) -> Iterator[None]:
    """The tensor as it is while another thread is between two stores of `t_()`."""
    view = DLTensor()
    lend = table_of(torch.Tensor).dltensor_from_py_object_no_sync
    assert lend(tensor, ctypes.byref(view)) == 0
    before = view.strides[1]
    view.strides[1] = view.strides[0]
    try:
        yield
    finally:
        view.strides[1] = before


@every_way
def test_a_shape_that_leads_outside_of_the_storage_is_refused(
    way: Callable[[Any], Any],
) -> None:
    """docs/safety.md, Threads: whatever was read, the elements lie in the storage."""
    tensor = torch.zeros(3, 4)
    with (
        half_changed(tensor),
        pytest.raises(BufferError, match="outside of its storage"),
    ):
        way(tensor)
    assert way(tensor) == (3, 4, 4, 1)


@every_way
def test_a_storage_that_has_shrunk_is_refused(way: Callable[[Any], Any]) -> None:
    """R111: torch lets the storage of a tensor be less than the tensor."""
    tensor = torch.zeros(3, 4)
    tensor.untyped_storage().resize_(47)
    with pytest.raises(BufferError, match="outside of its storage"):
        way(tensor)


@pytest.mark.parametrize("offset", [0, 1, 5])
def test_a_view_may_end_with_its_storage(offset: int) -> None:
    """docs/safety.md, Threads: the last element counts, and no more."""
    whole = torch.arange(12.0)
    view = whole[offset:].as_strided((2, 2), (11 - offset, 0), offset)
    assert dlx.from_dlpack(view).numpy().tolist() == view.tolist()


@contextmanager
def transposed_all_the_time(tensor: Any) -> Iterator[None]:
    """Another thread transposes the tensor, most of the time without the GIL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transpose = torch.jit.CompilationUnit(
            "def run(x: Tensor, n: int):\n    for _ in range(n):\n        x.t_()\n"
        ).run
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            transpose(tensor, 1000)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("way", SHARING.values(), ids=SHARING)
def test_what_is_imported_while_it_is_transposed_lies_in_its_storage(
    way: Callable[[Any], tuple[int, ...]],
) -> None:
    """docs/safety.md, Threads: torch lets go of the GIL, and stores one by one."""
    tensor, taken = torch.zeros(3, 4), 0
    with transposed_all_the_time(tensor):
        for _ in range(2000):
            with suppress(BufferError):
                n, m, step, other = way(tensor)
                assert (n - 1) * step + (m - 1) * other < math.prod((3, 4))
                taken += 1
    assert taken


def test_a_copy_made_while_the_tensor_is_transposed_holds_elements_of_its_storage() -> (
    None
):
    """docs/safety.md, Threads: a copy has the shape that was read, and its own room."""
    tensor, taken = torch.full((5, 4), 3.0)[1:4].fill_(7), 0
    with transposed_all_the_time(tensor):
        for _ in range(2000):
            with suppress(BufferError):
                copy = dlx.from_dlpack(tensor, copy=True).numpy()
                assert set(copy.shape) <= {3, 4}
                assert np.isin(copy, [3, 7]).all()
                taken += 1
    assert taken
