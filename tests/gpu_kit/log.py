"""A plugin of pytest that writes down each test as it starts and ends.

The process may hang or crash, so that nothing is left for its end. `GPU_KIT_LOG` names
the file, which gets one JSON object per line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

LOG = Path(os.environ.get("GPU_KIT_LOG") or os.devnull)
LONGEST = 4000
_told = [0]


def write(**entry: Any) -> None:
    """Add a line."""
    with LOG.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def text_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Give why a test was skipped or has failed."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext[-LONGEST:]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write down a file that cannot be collected."""
    if not report.passed:
        write(
            test=report.nodeid, outcome=report.outcome, seconds=0, said=text_of(report)
        )


def pytest_runtest_logstart(nodeid: str) -> None:
    """Write down that a test starts."""
    write(started=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down how it went; for a test that passes, its call alone."""
    if report.when == "call" or not report.passed:
        write(
            test=report.nodeid,
            outcome=report.outcome,
            seconds=round(report.duration, 3),
            said="" if report.passed else text_of(report),
        )


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Write down that it has ended, and what it found out."""
    found = getattr(sys.modules.get("gpu.report"), "FOUND", [])
    write(ended=nodeid, found=found[_told[0] :])
    _told[0] = len(found)
