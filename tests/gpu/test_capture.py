"""Captures of graphs, by the driver and by torch.

dlx refuses what would invalidate a capture, and the capture ends well. What it allows
becomes part of the graph, as a replay shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import dlx
import pytest

from gpu.captures import capture, replayed, torch_graph
from gpu.clients import client_of
from gpu.machine import COUNT, NEW, OLD, Machine, Stream


def tensor_of(gpu: Machine, stream: Any) -> dlx.Tensor:
    """Return a tensor that becomes ready on a stream."""
    return dlx.from_pointer(
        gpu.memory[0], (COUNT,), "float32", device="cuda:0", stream=stream
    )


def refused(number: int, order: Callable[[], object]) -> None:
    """Check that dlx refuses the order, naming this error of the driver."""
    with pytest.raises(BufferError, match=re.escape(f"({number})")):
        order()


def test_a_capture_orders_streams_that_it_holds(gpu: Machine) -> None:
    """H6: both streams are in one capture, where a wait is an edge."""
    tensor = tensor_of(gpu, gpu.p)
    with capture(gpu, gpu.p):
        gpu.driver.order(gpu.s.handle, gpu.p.handle)
        tensor.__dlpack__(stream=gpu.s.handle)
        gpu.driver.order(gpu.p.handle, gpu.s.handle)


def test_an_import_would_draw_its_stream_into_the_capture(gpu: Machine) -> None:
    """H6 (904): only the producer's stream captures; nothing would join the other."""
    tensor = tensor_of(gpu, gpu.p)
    with capture(gpu, gpu.p):
        refused(904, lambda: tensor.__dlpack__(stream=gpu.s.handle))
        assert not gpu.is_capturing(gpu.s)


def test_a_block_draws_its_stream_into_the_capture_and_brings_it_back(
    gpu: Machine,
) -> None:
    """H6: only the producer's stream captures; the block joins the other at its end."""
    tensor = tensor_of(gpu, gpu.p)
    with capture(gpu, gpu.p):
        with dlx.borrow(tensor, stream=gpu.s) as (view, _):
            assert gpu.is_capturing(gpu.s)
            gpu.read(view.data_ptr, gpu.s)
        with tensor.use(stream=gpu.s) as view:
            gpu.read(view.data_ptr, gpu.s)


def test_a_capture_does_not_wait_for_what_is_outside(gpu: Machine) -> None:
    """H6 (905): only the consumer's stream captures."""
    tensor = tensor_of(gpu, gpu.p)
    with capture(gpu, gpu.s):
        refused(905, lambda: tensor.__dlpack__(stream=gpu.s.handle))
        refused(905, dlx.borrow(tensor, stream=gpu.s).__enter__)


def test_two_captures_are_not_merged(gpu: Machine) -> None:
    """H6 (902): the two streams capture two graphs."""
    tensor = tensor_of(gpu, gpu.p)
    with capture(gpu, gpu.p), capture(gpu, gpu.s):
        refused(902, lambda: tensor.__dlpack__(stream=gpu.s.handle))


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_the_legacy_stream_is_left_alone(gpu: Machine, side: str) -> None:
    """H6 (906): a blocking stream captures; the legacy stream is the other one."""
    tensor = tensor_of(gpu, 1 if side == "producer" else gpu.s)
    stream = gpu.s.handle if side == "producer" else 1
    with capture(gpu, Stream(gpu.driver, flags=0)):
        refused(906, lambda: tensor.__dlpack__(stream=stream))


def test_no_order_is_the_way_out(gpu: Machine) -> None:
    """R76: `stream=-1` touches no capture."""
    tensor = tensor_of(gpu, gpu.p)
    with capture(gpu, gpu.s):
        tensor.__dlpack__(stream=-1)
        with dlx.borrow(tensor, stream=-1) as (view, _):
            gpu.read(view.data_ptr, gpu.s)


def test_deferred_releases_leave_a_capture_alone(gpu: Machine) -> None:
    """H6: dlx's thread queries events in a relaxed scope, also while another thread's
    capture is in the global mode.
    """
    torch = client_of("torch")
    with torch.stream(gpu.p):
        arrays = [torch.full(OLD) for _ in range(16)]
        gpu.synchronize()
        with gpu.gate.closed(gpu.s):
            for array in arrays:
                dlx.from_dlpack(array, stream=gpu.s)
            with capture(gpu, gpu.x):
                for array in arrays:
                    dlx.from_dlpack(array, stream=gpu.y)
            gpu.gate.open()


@pytest.mark.parametrize("other", [False, True], ids=["same stream", "other stream"])
def test_a_graph_of_torch_replays_what_was_launched_in_a_block(
    gpu: Machine, torch: ModuleType, other: bool
) -> None:
    """H6: a kernel through `borrow`, on torch's stream or on one that is joined."""
    source, target = (torch.zeros(COUNT, device="cuda:0") for _ in range(2))
    gpu.synchronize()
    with (
        torch_graph(torch, gpu.p) as graph,
        dlx.borrow(source, out=target, stream=gpu.s if other else None) as (a, b, s),
    ):
        assert s == (gpu.s if other else gpu.p).handle
        gpu.copy(b.data_ptr, a.data_ptr, s.handle)
    assert replayed(gpu, graph, source, target) == (OLD, NEW)


def test_a_graph_of_torch_replays_what_torch_does_with_a_tensor_of_dlx(
    gpu: Machine, torch: ModuleType
) -> None:
    """H6: torch to dlx to torch, on the stream that captures."""
    source, target = (torch.zeros(COUNT, device="cuda:0") for _ in range(2))
    gpu.synchronize()
    with torch_graph(torch, gpu.p) as graph:
        tensor = dlx.from_dlpack(source, stream=gpu.p)
        target.copy_(torch.from_dlpack(tensor))
    assert replayed(gpu, graph, source, target) == (OLD, NEW)


def test_memory_is_given_back_in_a_capture(gpu: Machine, torch: ModuleType) -> None:
    """H6: at once, because an event of a graph could not be queried later."""
    source, target = (torch.zeros(COUNT, device="cuda:0") for _ in range(2))
    gpu.synchronize()
    with torch_graph(torch, gpu.p) as graph:
        made = source + 0.0
        tensor = dlx.from_dlpack(made)
        with tensor.use(stream=gpu.s) as view:
            gpu.copy(target.data_ptr(), view.data_ptr, gpu.s)
        del made, tensor, view
    assert replayed(gpu, graph, source, target) == (OLD, NEW)
