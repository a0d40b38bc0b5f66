"""What dlx does beside a capture: sweeps, releases and waits of the host (H6)."""

from __future__ import annotations

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework, TableArray
from support.simulated_driver import Simulation
from support.simulated_kernels import held_elsewhere, read, refused
from support.simulated_objects import Stream

pytestmark = pytest.mark.usefixtures("running")


def test_a_sweep_does_not_break_the_capture_of_another_thread(
    sim: Simulation, array: TableArray, s: Stream
) -> None:
    """H6: cuEventQuery would in the global mode (pytorch #104487)."""
    captured = sim.stream()
    for _ in range(4):
        read(s, dlx.from_dlpack(array, stream=s))
    with held_elsewhere(captured.begin_capture, captured.end_capture):
        sim.clear_journal()
        sim.advance()
        dlx.from_dlpack(array)
        assert "cuEventQuery" in sim.called()


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
    dlx.from_dlpack(library.full((1,)), stream=s)
    assert array.deleted == 0
    sim.advance()
    dlx.from_dlpack(library.full((1,)), stream=s)
    assert array.deleted == 1


def test_a_release_in_a_capture_by_another_thread_does_not_break_it(
    sim: Simulation, library: Framework, array: TableArray, s: Stream
) -> None:
    """H6, H5: that thread has a mode of its own and no context."""
    held = [dlx.from_dlpack(array, stream=s)]
    with s.capture():
        in_thread(held.clear)
    for _ in range(2):
        sim.advance()
        dlx.from_dlpack(library.full((1,)), stream=s)
    assert array.deleted == 1


def test_no_deleter_runs_while_a_stream_concerned_captures(
    sim: Simulation, library: Framework, array: TableArray, s: Stream
) -> None:
    """H6: what frees memory breaks the capture."""
    tensor = dlx.from_dlpack(array, stream=s)
    read(s, tensor)
    del tensor
    sim.advance()
    p, other = library.current_stream(), library.full((1,))
    with p.capture():
        with dlx.borrow(other, stream=s):
            pass
        kept = [dlx.from_dlpack(other, stream=p), dlx.from_dlpack(other)]
        assert array.deleted == 0
    kept.clear()
    dlx.from_dlpack(other)
    assert array.deleted == 1


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
