"""Queues of dpctl: what dlx orders, shown with kernels that are still running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest

from oneapi.arrays import (
    NEW,
    OLD,
    Late,
    by_host_memory,
    by_memory,
    copy_on,
    dpnp,
    is_at_work,
    new_queue,
)


class Held(dlx.ExchangeMixin, exchange="data"):
    """A class of a user's own."""

    def __init__(self, data: Any) -> None:
        """Hold an array."""
        self.data = data


def values(x: Any) -> set[float]:
    """Give the values that the elements have."""
    return set(np.unique(np.asarray(x)).tolist())


@by_memory
def test_without_order_another_queue_reads_the_old_elements(usm_type: str) -> None:
    """R76: -1 orders nothing, or the tests below would show nothing."""
    queue, late = new_queue(), Late(usm_type)
    with late.written() as x:
        dlx.from_dlpack(x, stream=-1)
        read = copy_on(queue, late.memory)
    assert values(read) == {OLD}


FOR_A_QUEUE: dict[str, Callable[[Any, Any], Any]] = {
    "dlx": lambda x, queue: dlx.from_dlpack(x, stream=queue),
    "mixin": lambda x, queue: dlx.from_dlpack(Held(x), stream=queue),
    "capsule": lambda x, queue: dlx.from_dlpack(
        x.__dlpack__(stream=queue, max_version=(1, 3))
    ),
}


@pytest.mark.parametrize("take", FOR_A_QUEUE.values(), ids=FOR_A_QUEUE)
@by_memory
def test_a_queue_that_is_the_stream_waits_for_the_kernels(
    usm_type: str, take: Callable[[Any, Any], Any]
) -> None:
    """R80: a barrier in the queue; the host does not wait."""
    queue, late = new_queue(), Late(usm_type)
    with late.written() as x:
        take(x, queue)
        at_work = is_at_work(late.queue)
        read = copy_on(queue, late.memory)
    assert (at_work, values(read)) == (True, {NEW})


@by_host_memory
def test_without_order_the_host_reads_the_old_elements(usm_type: str) -> None:
    """And so would a consumer that the producer does not wait for."""
    late = Late(usm_type)
    with late.written():
        found = values(np.frombuffer(late.memory, "float32"))
    assert found == {OLD}


TO_THE_HOST: dict[str, Callable[[Any], Any]] = {
    "dlx": lambda x: dlx.from_dlpack(x, device="cpu").numpy(),
    "mixin": lambda x: dlx.from_dlpack(Held(x), device="cpu").numpy(),
    "numpy, of a mixin": lambda x: np.from_dlpack(Held(x), device="cpu"),
    "convert": lambda x: dlx.convert(x, np.ndarray, device="cpu"),
}


@pytest.mark.parametrize("take", TO_THE_HOST.values(), ids=TO_THE_HOST)
@by_memory
def test_the_host_waits_for_the_kernels(
    usm_type: str, take: Callable[[Any], Any]
) -> None:
    """R50, R55: in place or copied, the elements are those that were written last."""
    late = Late(usm_type)
    with late.written() as x:
        found = values(take(x))
    assert found == {NEW}


LATER: dict[str, Callable[[dlx.Tensor], Any]] = {
    "dlx": lambda tensor: tensor.to(device="cpu").numpy(),
    "numpy": lambda tensor: np.from_dlpack(tensor, device="cpu"),
}


@pytest.mark.parametrize("take", LATER.values(), ids=LATER)
@by_host_memory
def test_the_host_waits_for_kernels_that_came_after_the_import(
    usm_type: str, take: Callable[[dlx.Tensor], Any]
) -> None:
    """R55: the tensor is asked for the CPU when they run."""
    late = Late(usm_type)
    tensor = dlx.from_dlpack(late.x)
    with late.written():
        found = values(take(tensor))
    assert found == {NEW}


@by_host_memory
def test_work_that_is_queued_later_is_seen_in_place(usm_type: str) -> None:
    """R49: no element was copied, so that its queue is to be waited for."""
    late = Late(usm_type)
    view = dlx.from_dlpack(late.x, device="cpu").numpy()
    before = values(view)
    with late.written():
        late.queue.wait()
        after = values(view)
    assert (before, after) == ({OLD}, {NEW})


def test_another_queue_is_waited_for_by_the_caller() -> None:
    """docs/devices.md, oneAPI: dlx waits for the array's own queue."""
    queue, late = new_queue(), Late("shared")
    x = dpnp.full(8, OLD, dtype="float32", usm_type="shared", sycl_queue=queue)
    with late.written():
        dlx.from_dlpack(x, device="cpu")
        assert is_at_work(late.queue)
