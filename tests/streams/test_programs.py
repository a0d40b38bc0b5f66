"""Random programs on streams of every kind, with three libraries: dlx makes no race.

`DLX_EVERY=1` runs several times as many, as in `make ci`; `DLX_MORE_PROGRAMS=100000` as
many as that, and others each time. For a million there is `support.random_programs`,
which needs no hypothesis and takes a seed.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.program_state import Step
from support.program_streams import ForeignStream
from support.random_programs import NUMBERS, fault, program, run, shorter
from support.simulated_contexts import green_context
from support.simulated_driver import Simulation
from support.stream_programs import STEPS

OPERAND = st.integers(0, NUMBERS - 1)
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(STEPS), OPERAND, OPERAND, OPERAND),
    min_size=4,
    max_size=40,
)

# The library works elsewhere when it gets its memory back.
ELSEWHERE: list[Step] = [
    ("switch", 0, 1, 1),
    ("take", 0, 1, 2),
    ("switch", 0, 0, 1),
    ("kernel", 0, 0, 0),
    ("drop", 0, 0, 1),
    ("new", 0, 0, 1),
]
# A library without a table is not told of work on the default stream.
UNTOLD: list[Step] = [
    ("switch", 2, 1, 3),
    ("new", 5, 8, 10),
    ("borrow", 1, 10, 6),
    ("inside", 8, 4, 5),
]
# A block of one stream that another block draws into a capture.
DRAWN: list[Step] = [
    ("take", 4, 6, 19),
    ("take_again", 4, 18, 0),
    ("begin", 16, 2, 0),
    ("kernel", 19, 21, 7),
    ("borrow_many", 21, 6, 21),
    ("leave", 18, 7, 19),
    ("borrow_many", 14, 4, 10),
]

# The same programs each time: a failure shows again, and a change that is not at fault
# does not fail.
MORE = int(os.environ.get("DLX_MORE_PROGRAMS", "0"))
COUNT = 1200 if os.environ.get("DLX_EVERY") else 400
# Of fewer than 550, some of dlx's paths are not in five.
SEEDED = 800 if os.environ.get("DLX_EVERY") else 600


@settings(max_examples=MORE or COUNT, derandomize=not MORE, database=None)
@given(PROGRAMS)
@example(ELSEWHERE)
@example(UNTOLD)
@example(DRAWN)
def test_no_program_has_a_race(steps: list[Step]) -> None:
    """H1 to H6, H12, R80: with all of dlx's ways in, out and back."""
    assert fault(steps) == ""


def test_the_programs_of_a_seed_have_no_race_and_do_everything() -> None:
    """H1 to H6: the same as with the command, and nothing is left out or refused."""
    counts: dict[str, int] = {}
    for number in range(SEEDED):
        state = run(program("test", number))
        assert state.sim.races == []
        assert state.sim.violations == []
        for path, count in state.counts.items():
            counts[path] = counts.get(path, 0) + count
    done = {"take", "take_own", "take_again", "drop", "wait", "give", "give_by_table"}
    done |= {"borrow", "use", "end of borrow", "end of use", "end_consumer", "launch"}
    inside = {f"{path} in a capture" for path in done - {"take_own", "end_consumer"}}
    done |= {"call_by_table", "take_arrow", "launch without a call"}
    refused = {f"{x}, refused" for x in ("take", "borrow", "use", "launch", "give")}
    missing = {path for path in done | inside | refused if counts.get(path, 0) < 5}
    assert missing == set()


def test_a_program_records_on_a_green_stream_in_two_threads(sim: Simulation) -> None:
    """H4: as its memory is freed in any, and its context is current in one."""
    stream = ForeignStream(sim, green_context(sim))

    def free() -> None:
        with sim.on_device(0):
            stream.record().synchronize()

    with stream.context.current(), ThreadPoolExecutor(1) as pool:
        pool.submit(free).result()


# With a program that needs the order of each, which is tried before the others.
PATHS = {
    "take": 46,
    "take_again": 31,
    "take_arrow": 1,
    "borrow": 1,
    "end of borrow": 3,
    "use": 34,
    "end of use": 53,
    "launch": 1,
    "give": 1,
    "give_by_table": 14,
    "call_by_table": 27,
    "wait": 1010,
    "release": 205,
}


SWITCHED_OFF: dict[str, tuple[int, dict[str, Any]]] = {
    "memory is freed at once": (67, {"release": "none"}),
    "nothing is ordered": (1, {"unordered": True}),
}


def racing(first: int, **off: Any) -> list[Step]:
    """Return a program that has a race without some of dlx's order."""
    for number in (first, *range(4000)):
        steps = program("planted", number)
        if run(steps, **off).sim.races:
            return steps
    raise AssertionError(f"no program needs the order of {off}")


@pytest.mark.parametrize("path", PATHS)
def test_programs_have_races_where_one_path_orders_nothing(path: str) -> None:
    """H1, H2, H4, H12: a fault of each of dlx's paths is found."""
    assert fault(racing(PATHS[path], muted=path)) == ""


@pytest.mark.parametrize("what", SWITCHED_OFF)
def test_programs_have_races_where_the_order_is_switched_off(what: str) -> None:
    """H1, H4: so the programs are such that dlx's order matters."""
    first, off = SWITCHED_OFF[what]
    assert fault(racing(first, **off)) == ""


def test_a_program_that_fails_is_made_shorter() -> None:
    """H4: to steps that still fail."""
    steps = racing(PATHS["release"], muted="release")
    fewer = shorter(steps, muted="release")
    assert len(fewer) < len(steps)
    assert fault(fewer, muted="release")
