"""The fuzzer finds each planted bug."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from support.optional_libraries import requires

from .libraries import MODULES
from .planted import BUGS
from .session import fuzz
from .worker import library


@cache
def found() -> dict[str, dict[str, Any]]:
    """Return the first finding of each bug."""
    ran = fuzz(module="truth.hunt")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return {line["bug"]: line for line in lines}


@pytest.fixture(params=BUGS)
def bug(request: pytest.FixtureRequest) -> str:
    """Return the name of a bug that the installed libraries can show."""
    name: str = request.param
    for need in library(BUGS[name].library).needs:
        requires(MODULES[need])
    return name


def test_a_planted_bug_is_found(bug: str) -> None:
    finding = found()[bug]
    assert re.search(BUGS[bug].says, finding["wrong"]), finding


def test_the_program_that_finds_it_is_right_without_it(bug: str) -> None:
    finding = found()[bug]
    assert finding["lines"]
    assert finding["without"] == "", finding
