"""Every pair has the outcome that the rules and `pairs.json` say.

Only `tests/tasks.py interop-report` writes that file.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from textwrap import dedent

import pytest
from support.optional_libraries import needs

from .cells import DLX, RATIO
from .consumers import CONSUMERS
from .deviations import DEVIATIONS, Deviation
from .matrix import ENVIRONMENT, MODULES, Pair
from .producers import PRODUCERS
from .report import Found, found, load, outcomes
from .run import results

REAL = 10
"""The minimum number of real libraries."""

Everything = tuple[dict[tuple[str, str], Pair], Found]


@pytest.fixture(scope="module")
def everything() -> Everything:
    """Return all pairs, and what is written of them."""
    pairs, versions, missing = results()
    by_ends = {(pair.producer, pair.consumer): pair for pair in pairs}
    return by_ends, found(pairs, versions, missing)


def there(name: str) -> bool:
    """Whether a library is installed."""
    return importlib.util.find_spec(MODULES[name].partition(".")[0]) is not None


PAIRS = [
    (producer.name, consumer)
    for producer in PRODUCERS
    for consumer in [DLX, *(each.name for each in CONSUMERS)]
    if consumer == DLX or "" not in producer.refused
]


@pytest.mark.parametrize(("producer", "consumer"), PAIRS)
def test_a_pair_comes_out_as_expected(
    everything: Everything, producer: str, consumer: str
) -> None:
    """R39, R49, R89 to R95, R102 to R108, and R8 at both ends."""
    for name in (producer, consumer):
        needs(MODULES.get(name, "sys"))
    pair = everything[0][producer, consumer]
    asserted = [cell for cell in pair.cells if cell.case != RATIO]
    assert asserted
    assert [cell for cell in asserted if cell.expected != cell.outcome] == []


def test_there_are_enough_real_libraries() -> None:
    """At least ten of those that are named are installed."""
    names = {each.name for each in PRODUCERS} | {each.name for each in CONSUMERS}
    assert len([name for name in names if name in MODULES and there(name)]) >= REAL


def test_the_file_says_what_came_out(everything: Everything) -> None:
    """After an intended change, `tests/tasks.py interop-report` writes the file."""
    for module in MODULES.values():
        needs(module)
    _, now = everything
    assert outcomes(load()) == outcomes(now), "run `tests/tasks.py interop-report`"


@pytest.mark.parametrize(
    "deviation", DEVIATIONS, ids=[f"{each.library}-{each.what}" for each in DEVIATIONS]
)
def test_a_deviation_is_as_described(deviation: Deviation) -> None:
    """If this fails, a library has changed: remove the deviation, or its rule."""
    needs(MODULES[deviation.library])
    ran = subprocess.run(
        [sys.executable, "-c", dedent(deviation.code)],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    if deviation.ends.startswith("signal"):
        assert f"signal {-ran.returncode}" == deviation.ends
    elif deviation.ends:
        assert re.search(rf"^(\w+\.)*{deviation.ends}\b", ran.stderr, re.MULTILINE)
    else:
        assert ran.returncode == 0, ran.stderr
