"""Random programs on four streams, with three libraries: no race is dlx's fault."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st
from support.cuda_producers import DLPackArray, InterfaceArray, TableArray, framework
from support.simulated_driver import Simulation, simulation
from support.stream_programs import STEPS, Program, Step

NUMBERS = st.integers(0, 11)
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(STEPS), NUMBERS, NUMBERS, NUMBERS),
    min_size=4,
    max_size=40,
)

# The library works elsewhere when it gets its memory back.
ELSEWHERE: list[Step] = [
    ("switch", 0, 1, 0),
    ("take", 0, 1, 0),
    ("switch", 0, 0, 0),
    ("kernel", 0, 0, 0),
    ("drop", 0, 0, 0),
    ("new", 0, 0, 0),
]
BACK_ELSEWHERE: list[Step] = [
    ("switch", 6, 11, 3),
    ("take", 8, 6, 5),
    ("switch", 6, 8, 11),
    ("give_by_table", 11, 10, 8),
]
# A library without a table is not told of work on the default stream.
UNTOLD: list[Step] = [
    ("switch", 11, 1, 11),
    ("new", 5, 8, 10),
    ("borrow", 1, 10, 6),
    ("inside", 8, 4, 5),
]


def run(steps: Sequence[Step], **switched_off: Any) -> Simulation:
    """Run a program on a machine of its own."""
    sim = simulation()
    sim.start()
    libraries = [
        framework(TableArray, "one"),
        framework(InterfaceArray, "two"),
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


# The same programs each time: a failure shows again, and a change that is not at fault
# does not fail. `DLX_MORE_PROGRAMS=100000` runs as many, and others each time.
MORE = int(os.environ.get("DLX_MORE_PROGRAMS", "0"))


@settings(max_examples=MORE or 2000, derandomize=not MORE, deadline=None, database=None)
@given(PROGRAMS)
@example(ELSEWHERE)
@example(BACK_ELSEWHERE)
@example(UNTOLD)
def test_no_program_has_a_race(steps: list[Step]) -> None:
    """H1, H2, H4, H12, R80: with all of dlx's ways in, out and back."""
    sim = run(steps)
    assert sim.races == []
    assert sim.violations == []


@pytest.mark.parametrize(
    "switched_off",
    [{"release": "none"}, {"unordered": True}],
    ids=["memory is freed at once", "nothing is ordered"],
)
def test_programs_have_races_where_the_order_is_switched_off(
    switched_off: dict[str, Any],
) -> None:
    """H1, H4: so the programs are such that dlx's order matters."""
    found = find(
        PROGRAMS,
        lambda steps: bool(run(steps, **switched_off).races),
        settings=settings(
            max_examples=200, derandomize=True, phases=[Phase.generate], database=None
        ),
    )
    assert run(found).races == []
