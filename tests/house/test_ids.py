"""Ids of tests are the same in every process, as pytest-xdist demands.

It compares what `make test` runs by itself. Here are the folders that run without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = [
    "tests/drivers",
    "tests/gpu",
    "tests/interop",
    "tests/oneapi",
    "packages/dlx-share/tests/engines",
]


def collected(seed: int) -> list[str]:
    """Give the ids of all tests of these folders, where a seed orders the sets."""
    options = ["--collect-only", "--quiet", "-p", "no:cacheprovider"]
    options += ["--assert=plain"]  # No test runs.
    # Each folder has an environment of its own, whose libraries may be missing here.
    settings = {"PYTHONHASHSEED": str(seed), "DLX_REQUIRE_HEAVY": ""}
    # No id comes from a plugin, and importing them takes longer than collecting.
    settings |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *FOLDERS],
        cwd=ROOT,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [line for line in ran.stdout.splitlines() if "::" in line]


def test_two_processes_collect_the_same_ids() -> None:
    """CONTRIBUTING.md, Rules: no address is in an id, nor the order of a set."""
    assert collected(1) == collected(2) != []
