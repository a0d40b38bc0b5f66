"""Programs for which dlx was wrong once."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path

import pytest

from .kit import MODULES
from .session import fuzz

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.txt"))
NEEDS = "# needs: "


def is_missing(path: Path) -> bool:
    """Whether a program needs a library that is not installed."""
    first = path.read_text().partition("\n")[0]
    names = first.removeprefix(NEEDS).split() if first.startswith(NEEDS) else []
    return any(
        importlib.util.find_spec(MODULES[name].partition(".")[0]) is None
        for name in names
    )


@cache
def problems() -> dict[str, str]:
    """Return what is wrong with each program: one run, a process for each."""
    ran = fuzz(*(f"--program={path}" for path in CORPUS if not is_missing(path)))
    lines = [line for line in ran.stdout.splitlines() if line.startswith("results: ")]
    assert lines, ran.stderr
    found: dict[str, str] = json.loads(lines[-1].removeprefix("results: "))
    return found


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_wrong_once_is_right(path: Path) -> None:
    if is_missing(path):
        pytest.skip(f"{path.name} needs what `make interop` installs")
    assert problems()[str(path)] == ""
