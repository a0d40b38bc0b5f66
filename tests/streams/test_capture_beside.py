"""What dlx does beside a capture: sweeps, releases and waits of the host (B.6)."""

from __future__ import annotations

from typing import Any

import dlx
import pytest
from support.cuda_producers import Framework
from support.simulated_driver import Simulation
from support.simulated_kernels import held_elsewhere, in_thread, read, refused
from support.simulated_objects import GLOBAL


@pytest.fixture(autouse=True)
def _loaded(sim: Simulation, library: Framework) -> None:
    """Have the driver loaded and an event in the pool, as in a program that runs."""
    with library.stream(sim.stream()):
        dlx.from_dlpack(library.full((1,))).__dlpack__(stream=sim.stream().handle)


def test_a_sweep_does_not_break_the_capture_of_another_thread(
    sim: Simulation, library: Framework
) -> None:
    """B.6: cuEventQuery would under the global mode (pytorch #104487)."""
    p, s, captured = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        for _ in range(4):
            read(s, dlx.from_dlpack(array, stream=s))
        with held_elsewhere(captured.begin_capture, captured.end_capture):
            sim.clear_journal()
            sim.advance()
            dlx.from_dlpack(array)
            assert "cuEventQuery" in sim.called()


def test_waiting_for_the_oldest_does_not_break_the_capture_of_another_thread(
    sim: Simulation, library: Framework
) -> None:
    """B.6: nor does cuEventSynchronize, beyond the bounds of what waits."""
    p, s, captured = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        with held_elsewhere(captured.begin_capture, captured.end_capture):
            for _ in range(1100):
                dlx.from_dlpack(array, stream=s)
            assert "cuEventSynchronize" in sim.called()


@pytest.mark.parametrize("release", ["auto", "wait-back", "sync"])
def test_a_release_in_a_capture_gives_back_at_once(
    sim: Simulation, library: Framework, release: Any
) -> None:
    """B.6: no event could be asked about, and who replays keeps the source."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s, release=release)
        s.begin_capture()
        read(s, tensor)
        del tensor
        assert array.deleted == 1
    s.end_capture()


def test_a_release_in_a_capture_by_another_thread_does_not_break_it(
    sim: Simulation, library: Framework
) -> None:
    """B.6, H5: the thread has its own mode and no context."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        held = [dlx.from_dlpack(array, stream=s)]
        s.begin_capture(GLOBAL)
        in_thread(held.clear)
        assert array.deleted == 1
    s.end_capture()


def test_the_host_does_not_wait_for_a_capture(
    sim: Simulation, library: Framework
) -> None:
    """B.6: cuStreamSynchronize would break it."""
    p = sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=p)
        p.begin_capture()
        with refused(p, match="synchronize after the capture"):
            tensor.synchronize()
        with refused(p, match="has no end yet"):
            dlx.Stream(p).synchronize()
    p.end_capture()


def test_the_host_waits_beside_a_capture(sim: Simulation, library: Framework) -> None:
    """B.6: of another thread, under the global mode."""
    p, captured = sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=p)
        ready = dlx.from_dlpack(library.full((4,)))
        with held_elsewhere(captured.begin_capture, captured.end_capture):
            tensor.synchronize()
            ready.synchronize()
            dlx.Stream(p).synchronize()


def test_events_are_made_beside_a_capture(sim: Simulation, library: Framework) -> None:
    """B.6: the pool may be empty when a capture begins."""
    p, s, captured = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        captured.begin_capture(GLOBAL)
        sim.clear_journal()
        kept = [dlx.from_dlpack(array) for _ in range(sim.counts["events"] + 1)]
        kept[-1].__dlpack__(stream=s.handle)
        assert "cuEventCreate" in sim.called()
    captured.end_capture()
