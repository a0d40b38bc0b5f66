"""The simulated HIP runtime: where it is not CUDA under other names."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.python_process import run_python
from support.simulated_driver import Simulation
from support.simulated_objects import RELAXED, DriverError


@pytest.mark.parametrize("ask", ["query", "synchronize"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "before"])
def test_a_question_of_hip_breaks_the_capture_of_the_events_stream(
    sim: Simulation, ask: str, inside: bool
) -> None:
    """ROCm's `hip_event.cpp`: also for an event recorded before the capture began."""
    a, event = sim.stream(hip=True), sim.event(hip=True)
    event.record(a)
    sim.advance()
    a.begin_capture()
    if inside:
        event.record(a)
    with pytest.raises(DriverError, match="907"):
        getattr(event, ask)()
    assert a.capture_status() == 2


def test_a_question_of_cuda_is_about_the_event(sim: Simulation) -> None:
    """Unlike on HIP: its stream may capture by then, if the thread is relaxed."""
    a, event = sim.stream(), sim.event()
    event.record(a)
    sim.advance()
    with a.capture(RELAXED):
        assert event.query()


def test_a_runtime_found_under_two_names_is_two_machines(tmp_path: Path) -> None:
    """Handles of one mean nothing to the other."""
    code, output, errors = run_python(f"""
        from pathlib import Path
        from support.simulated_driver import Simulation, library_in
        folder = Path({str(tmp_path)!r})
        one, other = map(Simulation, library_in(folder, "hip.so.6", "hip.so.7"))
        event = one.event(hip=True)
        print(other.answer("hipEventQuery", event.handle), one.counts["events"])
    """)
    assert (code, output, errors) == (0, "400 1\n", "")
