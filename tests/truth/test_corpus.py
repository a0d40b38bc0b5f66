"""Programs for which dlx was wrong once, and those for which it is wrong still."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .known import KNOWN
from .libraries import MODULES
from .session import fuzz

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.txt"))


def said_in(path: Path, what: str) -> list[str]:
    """Return the words of a program's comment ``# what: ...``."""
    found = re.search(f"^# {what}: (.*)$", path.read_text(), re.MULTILINE)
    return found[1].split() if found else []


def is_missing(path: Path) -> bool:
    """Whether a program needs a library that is not installed."""
    return any(
        importlib.util.find_spec(MODULES[name].partition(".")[0]) is None
        for name in said_in(path, "needs")
    )


@cache
def problems() -> dict[str, dict[str, str]]:
    """Return what is wrong with each program: one run, a process for each."""
    ran = fuzz(*(f"--program={path}" for path in CORPUS if not is_missing(path)))
    lines = [line for line in ran.stdout.splitlines() if line.startswith("results: ")]
    assert lines, ran.stderr
    found: dict[str, dict[str, str]] = json.loads(lines[-1].removeprefix("results: "))
    return found


def problem_of(path: Path) -> dict[str, str]:
    """Return what is wrong with a program, and which known fault that is."""
    if is_missing(path):
        pytest.skip(f"{path.name} needs what `tests/tasks.py interop` installs")
    return problems()[str(path)]


def corpus() -> list[Any]:
    """Return the programs; a fault that is known is expected to be there, strictly."""
    mark = pytest.mark.xfail(
        reason="docs/convert.md names it", strict=True, raises=AssertionError
    )
    return [
        pytest.param(path, marks=mark if said_in(path, "known") else (), id=path.stem)
        for path in CORPUS
    ]


@pytest.mark.parametrize("path", corpus())
def test_what_was_wrong_once_is_right(path: Path) -> None:
    assert problem_of(path)["wrong"] == ""


@pytest.mark.parametrize(
    "path",
    [path for path in CORPUS if said_in(path, "known")],
    ids=lambda path: path.stem,
)
def test_a_program_shows_the_known_fault_that_it_names(path: Path) -> None:
    assert said_in(path, "known") == [problem_of(path)["known"]]


def test_each_known_fault_has_a_program() -> None:
    assert set(KNOWN) == {name for path in CORPUS for name in said_in(path, "known")}
