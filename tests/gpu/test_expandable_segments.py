"""Memory of torch in expandable segments."""

from __future__ import annotations

import json

import pytest
from support.python_process import run_python

from gpu.expandable_segments import CHECKS
from gpu.report import found


@pytest.fixture(scope="module")
def failed() -> dict[str, str]:
    """Run all checks in one process, since the option is read only once."""
    pytest.importorskip("torch")
    code, out, errors = run_python("from gpu import expandable_segments as e; e.main()")
    assert code == 0, errors
    *lines, last = out.splitlines()
    for line in lines:
        found(f"expandable segments: {line}")
    why: dict[str, str] = json.loads(last)
    return why


@pytest.mark.parametrize("name", CHECKS)
def test_expandable_segments_change_nothing(failed: dict[str, str], name: str) -> None:
    """R47, R54, R73, R80, R148, H4: each check, and that torch has such segments."""
    assert failed[name] == ""
