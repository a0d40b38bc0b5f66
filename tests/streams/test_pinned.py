"""Pinned memory: it has no stream, but a stream may write it (H11)."""

from __future__ import annotations

import dlx
import pytest
from support.simulated_driver import Simulation
from support.simulated_objects import Memory


def pinned(sim: Simulation) -> tuple[dlx.Tensor, Memory]:
    """Give a tensor in pinned memory, and what holds the memory."""
    memory = sim.allocate(16, kind="pinned")
    tensor = dlx.from_pointer(
        memory.address, (4,), "float32", device="cuda_host:0", owner=memory
    )
    return tensor, memory


def test_the_host_waits_for_the_stream_that_is_named(sim: Simulation) -> None:
    """H11: the copy down has ended when the host looks."""
    s = sim.stream()
    tensor, memory = pinned(sim)
    s.write(memory)
    tensor.synchronize(stream=s)
    sim.host_read(tensor.data_ptr, tensor.nbytes)
    assert sim.races == []


def test_without_a_stream_nothing_is_waited_for_in_silence(sim: Simulation) -> None:
    """H11: dlx cannot know who writes it, and says so."""
    tensor, _ = pinned(sim)
    with pytest.raises(BufferError, match=r"pass synchronize\(stream=\) the stream"):
        tensor.synchronize()


def test_no_order_is_taken_at_its_word(sim: Simulation) -> None:
    """R76: nobody writes it."""
    tensor, _ = pinned(sim)
    sim.clear_journal()
    tensor.synchronize(stream=-1)
    assert sim.called() == []


def test_a_tensor_on_a_device_waits_for_another_stream_too(sim: Simulation) -> None:
    """H10: one that its library does not know."""
    s, memory = sim.stream(), sim.allocate(16, kind="managed")
    tensor = dlx.from_pointer(
        memory.address, (4,), "float32", device="cuda_managed:0", owner=memory
    )
    s.write(memory)
    tensor.synchronize(stream=s)
    sim.host_read(memory.address, memory.nbytes)
    assert sim.races == []


def test_a_tensor_on_the_cpu_takes_no_stream(sim: Simulation) -> None:
    """R70: there is none."""
    with pytest.raises(BufferError, match="has no streams"):
        dlx.empty(4, "float32").synchronize(stream=sim.stream())
