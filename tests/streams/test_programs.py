"""Random programs on four streams, with three libraries: no race is dlx's fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from cuda_producers import DLPackArray, TableArray, framework
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from simulated_driver import Simulation, simulation
from stream_programs import STEPS, Program, Step

NUMBERS = st.integers(0, 11)
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(STEPS), NUMBERS, NUMBERS, NUMBERS),
    min_size=4,
    max_size=40,
)


def run(steps: Sequence[Step], **switched_off: Any) -> Simulation:
    """Run a program on a machine of its own."""
    sim = simulation()
    sim.start()
    libraries = [
        framework(TableArray, "one"),
        framework(TableArray, "two"),
        framework(DLPackArray, "three"),
    ]
    streams = [
        sim.stream(),
        sim.stream(),
        sim.stream(blocking=True),
        sim.default_stream(),
    ]
    consumer = framework(DLPackArray, "consumer")
    Program(sim, libraries, consumer, streams, **switched_off).run(steps)
    return sim


# The same programs each time, so that a change that is not at fault does not fail; for
# others, run with --hypothesis-seed and without derandomize.
@settings(max_examples=2000, derandomize=True, deadline=None, database=None)
@given(PROGRAMS)
def test_no_program_has_a_race(steps: list[Step]) -> None:
    """H1, H2, H4, H12, R80: with all of dlx's ways in, out and back."""
    sim = run(steps)
    assert sim.races == []
    assert sim.violations == []
