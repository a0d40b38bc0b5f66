"""A pair that crashes, raises or hangs is a failing cell, not a missing one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from . import matrix
from .matrix import run_pair


def crash(producer: str, consumer: str, results: int) -> None:
    """Crash, as a bug in C code does."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail(producer: str, consumer: str, results: int) -> None:
    """Raise an exception."""
    raise KeyError("lost")


def hang(producer: str, consumer: str, results: int) -> None:
    """Hang."""
    time.sleep(60)


def begin(producer: str, consumer: str, results: int) -> None:
    """Crash while a case runs."""
    os.write(results, b'["", "strided", "", ""]\n')
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("child", "case", "outcome"),
    [
        (crash, "import", "killed by signal 9"),
        (fail, "import", "exit code 1: KeyError: 'lost'"),
        (hang, "import", "nothing after 0.1 s"),
        (begin, "strided", "killed by signal 9"),
    ],
)
def test_a_pair_that_ends_badly_says_where_and_how(
    monkeypatch: pytest.MonkeyPatch,
    child: Callable[[str, str, int], None],
    case: str,
    outcome: str,
) -> None:
    """The failing cell names the case, and how the process ended."""
    monkeypatch.setattr(matrix, "child", child)
    monkeypatch.setattr(matrix, "SECONDS", 0.1 if child is hang else 10)
    (cell,) = run_pair("numpy", "torch").cells
    assert (cell.case, cell.outcome.splitlines()[0]) == (case, outcome)
    assert cell.expected != cell.outcome
