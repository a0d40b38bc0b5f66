"""Every pair comes out as the tables say, and as `docs/interop.md` says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from .cells import DLX, RATIO
from .consumers import CONSUMERS
from .deviations import DEVIATIONS, Deviation
from .matrix import ENVIRONMENT, MODULES, Pair
from .producers import PRODUCERS
from .report import outcomes, render
from .run import results

DOCUMENT = Path(__file__).parents[2] / "docs" / "interop.md"
REAL = 10
"""How many real libraries there are at least."""

Everything = tuple[dict[tuple[str, str], Pair], str, str]


@pytest.fixture(scope="module")
def everything() -> Everything:
    """All pairs, the document that they make, and the one that was there."""
    before = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    pairs, versions, missing = results()
    now = render(pairs, versions, missing)
    DOCUMENT.write_text(now)
    return {(pair.producer, pair.consumer): pair for pair in pairs}, before, now


def there(name: str) -> bool:
    """Whether a library is installed; what is no library always is."""
    module = MODULES.get(name, "sys").partition(".")[0]
    return importlib.util.find_spec(module) is not None


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
    if not there(producer) or not there(consumer):
        pytest.skip("not installed; docs/interop.md says so")
    pair = everything[0][producer, consumer]
    asserted = [cell for cell in pair.cells if cell.case != RATIO]
    assert asserted
    assert [cell for cell in asserted if cell.expected != cell.outcome] == []


def test_there_are_enough_real_libraries() -> None:
    """Named ones, at either end."""
    names = {each.name for each in PRODUCERS} | {each.name for each in CONSUMERS}
    assert len([name for name in names if name in MODULES and there(name)]) >= REAL


def test_the_document_says_what_came_out(everything: Everything) -> None:
    """It has been written anew: if this fails, look at the change and commit it."""
    _, before, now = everything
    assert outcomes(before).splitlines() == outcomes(now).splitlines()


@pytest.mark.parametrize(
    "deviation", DEVIATIONS, ids=[f"{each.library}-{each.what}" for each in DEVIATIONS]
)
def test_a_deviation_is_as_described(deviation: Deviation) -> None:
    """Where this fails, a library has changed: remove the deviation, or its rule."""
    if not there(deviation.library):
        pytest.skip("not installed")
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
