"""Each row finds a library that is wrong in one way; the reference meets them all.

`mutants.json` names each fault of `conformance.reference` and the rows that find it.
With DLX_EVERY=1 every row is run against each, to show that no other finds it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from dlx_check import run
from dlx_check.conformance.driver import VARIABLE
from dlx_check.conformance.requirements import requirements
from dlx_check.conformance.suite import CHECKS, NOT_CHECKABLE
from support.simulated_driver import library_path

from conformance.forking import found


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the rows of a simulated driver run."""
    monkeypatch.setenv(VARIABLE, str(library_path()))


HERE = Path(__file__).parent
MUTANTS: dict[str, str] = json.loads((HERE / "mutants.json").read_text())
ROWS = {check.id: check for check in CHECKS}


def test_the_reference_meets_every_row() -> None:
    """README.md: what the suite asks for can be had, and nothing is untestable."""
    report = run("conformance.reference:target")
    wrong = [
        (result.check, result.result, result.text)
        for result in report.results
        if result.result not in ("meets", "fact")
    ]
    assert not wrong


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_mutant_is_found_by_the_rows_that_are_named(fault: str) -> None:
    """README.md: a row that no mutant kills would hold for any library."""
    named = MUTANTS[fault].split()
    everything = os.environ.get("DLX_EVERY")
    checks = CHECKS if everything else [ROWS[name] for name in named]
    assert found(fault, checks) == set(named)


def test_each_row_is_killed_by_a_mutant() -> None:
    """README.md: a row without a mutant does not land."""
    assert {row for rows in MUTANTS.values() for row in rows.split()} == set(ROWS)


def test_each_row_has_its_own_name() -> None:
    """README.md: a deviations file names rows exactly."""
    assert len(ROWS) == len(CHECKS)


def test_each_requirement_has_a_row_or_a_reason() -> None:
    """requirements.tsv: R1 to R156, each in one of two lists."""
    rows = {name for check in CHECKS for name in check.requirements.split()}
    reasons = {name for each in NOT_CHECKABLE for name in each.requirements.split()}
    assert rows | reasons == set(requirements())
    assert not rows & reasons


def test_a_source_is_spelled_out() -> None:
    """README.md: letters and numbers of our table mean nothing to others."""
    assert requirements()["R59"].source == (
        "array API, `from_dlpack`, array API, copies and views"
    )
    assert requirements()["R9"].source.startswith("dlpack.h line 303-305")
