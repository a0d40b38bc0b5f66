"""The fixture `dlx_trace` (docs/inspect.md)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

PASSES = """
import dlx, numpy as np

def test_it(dlx_trace):
    x = dlx.from_dlpack(np.zeros(3))
    assert len(dlx_trace.live) == 1
"""
LEAKS = """
import dlx, numpy as np
kept = []

def test_it(dlx_trace):
    kept.append(dlx.from_dlpack(np.zeros(3)))
"""
FAILS = """
import dlx, numpy as np

def test_it(dlx_trace):
    x = dlx.from_dlpack(np.zeros(3))
    assert x is None
"""
UNUSED = """
import sys

def test_it():
    assert "dlx" not in sys.modules
"""


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        (PASSES, {"passed": 1}),
        (LEAKS, {"passed": 1, "errors": 1}),
        (FAILS, {"failed": 1}),
        (UNUSED, {"passed": 1}),
    ],
    ids=["released", "leaked", "failed", "not used"],
)
def test_a_test_fails_if_it_leaves_memory_behind(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    outcome: dict[str, int],
) -> None:
    # Other plugins take longer to import than the test to run.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(source)
    result = pytester.runpytest_subprocess("-p", "dlx_check.pytest_plugin")
    result.assert_outcomes(**outcome)
    if "errors" in outcome:
        result.stdout.fnmatch_lines(["*memory is still held: 1 alive*"])
