"""What dlx does beside a capture: releases and waits of the host (H6)."""

from __future__ import annotations

import weakref

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework, TableArray
from support.simulated_driver import RELEASE, Simulation
from support.simulated_kernels import held_elsewhere, read, refused, settle, until
from support.simulated_objects import Memory, Stream

pytestmark = pytest.mark.usefixtures("running")


def test_the_release_of_memory_does_not_break_the_capture_of_another_thread(
    sim: Simulation, array: TableArray, s: Stream
) -> None:
    """H6: cuEventQuery would in the global mode (pytorch #104487)."""
    captured = sim.stream()
    for _ in range(4):
        read(s, dlx.from_dlpack(array, stream=s))
    with held_elsewhere(captured.begin_capture, captured.end_capture):
        sim.clear_journal()
        sim.advance()
        until(lambda: array.deleted == 4)
        assert "cuEventQuery" in sim.called(RELEASE)


def test_waiting_for_the_oldest_does_not_break_the_capture_of_another_thread(
    sim: Simulation, array: TableArray, s: Stream
) -> None:
    """H6: the list of deferred tensors is full, so cuEventSynchronize is called."""
    captured = sim.stream()
    with held_elsewhere(captured.begin_capture, captured.end_capture):
        for _ in range(1100):
            dlx.from_dlpack(array, stream=s)
        assert "cuEventSynchronize" in sim.called()


def test_what_dies_in_a_capture_waits_for_the_work_before_it(
    sim: Simulation, library: Framework, array: TableArray, s: Stream
) -> None:
    """H4, H6: no event can be recorded until the capture has ended."""
    tensor = dlx.from_dlpack(array, stream=s)
    read(s, tensor)
    with s.capture():
        read(s, tensor)
        del tensor
        assert array.deleted == 0
    until(lambda: "cuEventRecord" in sim.called(RELEASE))
    assert array.deleted == 0
    sim.advance()
    until(lambda: array.deleted == 1)


def test_a_release_in_a_capture_by_another_thread_does_not_break_it(
    sim: Simulation, library: Framework, array: TableArray, s: Stream
) -> None:
    """H6, H5: that thread has a mode of its own and no context."""
    held = [dlx.from_dlpack(array, stream=s)]
    with s.capture():
        in_thread(held.clear)
    settle(sim)
    assert array.deleted == 1


class Owner:
    """Frees memory when it dies, as deleters do."""

    def __init__(self, memory: Memory) -> None:
        """Own the memory."""
        self.memory = memory

    def __del__(self) -> None:
        """Free it, on any thread."""
        with self.memory.sim.on_device(0):
            self.memory.free()


def test_a_deleter_that_frees_memory_does_not_break_a_capture(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H6: cuMemFree would in the global mode; the thread has another."""
    memory = sim.allocate(16)
    owner = Owner(memory)
    gone = weakref.ref(owner)
    tensor = dlx.from_pointer(
        memory.address, (4,), "float32", device="cuda:0", owner=owner, stream=p
    )
    del owner
    read(s, dlx.from_dlpack(tensor, stream=s))
    del tensor
    with p.capture():
        sim.advance()
        until(lambda: gone() is None)


def test_the_host_does_not_wait_for_a_capture(array: TableArray, p: Stream) -> None:
    """H6: cuStreamSynchronize would break it."""
    tensor = dlx.from_dlpack(array, stream=p)
    with p.capture():
        with refused(p, match="synchronize after the capture"):
            tensor.synchronize()
        with refused(p, match="has no end yet"):
            dlx.Stream(p).synchronize()


def test_the_host_waits_beside_a_capture(
    sim: Simulation, library: Framework, array: TableArray, p: Stream
) -> None:
    """H6: another thread captures in the global mode."""
    captured = sim.stream()
    tensor = dlx.from_dlpack(array, stream=p)
    ready = dlx.from_dlpack(library.full((4,)))
    with held_elsewhere(captured.begin_capture, captured.end_capture):
        tensor.synchronize()
        ready.synchronize()
        dlx.Stream(p).synchronize()


def test_events_are_made_beside_a_capture(
    sim: Simulation, array: TableArray, s: Stream
) -> None:
    """H6: the pool may be empty when a capture begins."""
    with sim.stream().capture():
        sim.clear_journal()
        kept = [dlx.from_dlpack(array) for _ in range(sim.counts["events"] + 1)]
        kept[-1].__dlpack__(stream=s.handle)
        assert "cuEventCreate" in sim.called()
