"""The pictures of docs/timeline.md show what the simulated driver has seen."""

from __future__ import annotations

import pytest
from support.simulated_driver import Simulation

from docs import timeline


@pytest.mark.parametrize("name", timeline.PICTURES)
def test_a_picture_is_drawn_from_the_journal(sim: Simulation, name: str) -> None:
    """docs/timeline.md: `make timeline` writes what the programs do now."""
    drawn = timeline.draw(sim, name)
    sim.start()
    assert drawn == (timeline.FOLDER / f"{name}.svg").read_text(), "run `make timeline`"


@pytest.mark.parametrize("name", timeline.PICTURES)
def test_the_first_run_races_and_the_second_does_not(
    sim: Simulation, name: str
) -> None:
    """H1, H4: the pictures compare a program without an order with one that has it."""
    races = [
        any(kernel.races for kernel in timeline.laid_out(sim, run).kernels)
        for run in timeline.PICTURES[name]
    ]
    sim.start()
    assert races == [True, False]


def test_a_stream_that_waits_goes_on_when_the_other_is_done(sim: Simulation) -> None:
    """H1: in a `borrow`, the later kernel starts where the earlier one ends."""
    kernels = timeline.laid_out(sim, timeline.PICTURES["timeline_borrow"][1]).kernels
    assert [kernel.label for kernel in kernels] == ["writes A", "reads A", "writes A"]
    ends = [kernel.start + timeline.KERNEL for kernel in kernels]
    assert [kernel.start for kernel in kernels[1:]] == ends[:-1]
