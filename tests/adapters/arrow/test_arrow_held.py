"""Arrow arrays that dlx takes: who holds them, and who releases them."""

from __future__ import annotations

import gc
import sys
from typing import Any

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from support.concurrent_threads import in_thread
from support.fake_arrow import (
    Answering,
    ByArray,
    ByDeviceArray,
    array_in,
    count_releases,
    numbers,
)

Show = type[ByArray]
either = pytest.mark.parametrize("show", [ByArray, ByDeviceArray])


class Counted:
    """How often the structs of every export are released."""

    def __init__(self) -> None:
        """Begin."""
        self.schema: list[list[int]] = []
        self.array: list[list[int]] = []

    def __call__(self, schema: Any, struct: Any) -> None:
        """Count for one export."""
        self.schema.append(count_releases(schema))
        self.array.append(count_releases(array_in(struct)))

    @property
    def released(self) -> tuple[list[int], list[int]]:
        """Releases of each schema and of each array."""
        return [len(calls) for calls in self.schema], [len(c) for c in self.array]


@either
def test_both_are_released_once(show: Show) -> None:
    """R8, docs/safety.md S12: the schema at once, the array with its last holder."""
    counted = Counted()
    tensor = dlx.from_dlpack(show(numbers(), counted))
    export = np.from_dlpack(tensor)
    assert counted.released == ([1], [0])
    del tensor
    assert counted.released == ([1], [0])
    del export
    assert counted.released == ([1], [1])


@either
def test_both_are_released_once_if_dlx_refuses(show: Show) -> None:
    """R11: schema and array, of an array with nulls."""
    counted = Counted()

    def change(schema: Any, struct: Any) -> None:
        counted(schema, struct)
        array_in(struct).null_count = 3

    with pytest.raises(BufferError):
        dlx.from_dlpack(show(numbers(), change))
    assert counted.released == ([1], [1])


@either
def test_a_copy_releases_at_once(show: Show) -> None:
    """R47: schema and array; the copy may be written."""
    counted = Counted()
    tensor = dlx.from_dlpack(show(numbers(), counted), copy=True)
    assert counted.released == ([1], [1])
    assert (tensor.is_copied, tensor.readonly) == (True, False)
    assert tensor.numpy().tolist() == [0, 1, 2, 3, 4]


def test_an_array_is_taken_out_of_its_capsule() -> None:
    """Arrow's C data interface, moving an array: the capsule has none afterwards."""
    capsules = numbers().__arrow_c_array__()
    tensor = dlx.from_dlpack(Answering(capsules))
    with pytest.raises(BufferError, match="already been released or moved"):
        dlx.from_dlpack(Answering(capsules))
    del capsules
    assert tensor.numpy().tolist() == [0, 1, 2, 3, 4]


def test_a_refused_array_is_left_in_its_capsule() -> None:
    """R11: it can be imported afterwards."""
    capsules = numbers().__arrow_c_array__()
    with pytest.raises(BufferError, match="is on cpu"):
        dlx.from_dlpack(Answering(numbers().__arrow_c_array__()), device="cuda:0")
    with pytest.raises(BufferError, match="named"):
        dlx.from_dlpack(Answering((capsules[1], capsules[0])))
    assert dlx.from_dlpack(Answering(capsules)).shape == (5,)


@either
def test_the_memory_outlives_the_array(show: Show) -> None:
    """R15: and is given back, as Arrow counts it."""
    gc.collect()
    before = pa.total_allocated_bytes()
    tensor = dlx.from_dlpack(show(numbers(size=1000)))
    gc.collect()
    assert pa.total_allocated_bytes() >= before + 8000
    assert tensor.numpy().tolist() == list(range(1000))
    del tensor
    assert pa.total_allocated_bytes() == before


def test_an_array_is_released_on_the_thread_that_lets_go_last() -> None:
    """R13: which is another one than that of the import."""
    counted = Counted()
    held = [dlx.from_dlpack(ByArray(numbers(), counted))]
    in_thread(held.clear)
    assert counted.released == ([1], [1])


@either
def test_the_object_itself_is_not_held(show: Show) -> None:
    """Arrow's C data interface: what is exported stands alone."""
    source = show(numbers())
    before = sys.getrefcount(source)
    tensor = dlx.from_dlpack(source)
    assert sys.getrefcount(source) == before
    assert tensor.size == 5
