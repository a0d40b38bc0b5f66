"""The picture of docs/streams.md shows what the simulated driver has seen."""

from __future__ import annotations

from support.simulated_driver import Simulation

from docs import timeline


def test_the_picture_is_drawn_from_the_journal(sim: Simulation) -> None:
    """docs/streams.md: `tests/docs/timeline.py` writes what the programs do now."""
    drawn = timeline.draw(sim)
    sim.start()
    assert drawn == timeline.PICTURE.read_text(), "run `tests/docs/timeline.py`"


def test_the_first_run_races_and_the_second_does_not(sim: Simulation) -> None:
    """H1: the picture compares a program without an order with one that has it."""
    races = [
        any(kernel.races for kernel in timeline.laid_out(sim, run).kernels)
        for run in timeline.RUNS
    ]
    sim.start()
    assert races == [True, False]


def test_a_stream_that_waits_goes_on_when_the_other_is_done(sim: Simulation) -> None:
    """H1: in a `borrow`, the later kernel starts where the earlier one ends."""
    kernels = timeline.laid_out(sim, timeline.RUNS[1]).kernels
    assert [kernel.label for kernel in kernels] == ["writes x", "reads x", "writes x"]
    ends = [kernel.start + timeline.KERNEL for kernel in kernels]
    assert [kernel.start for kernel in kernels[1:]] == ends[:-1]
