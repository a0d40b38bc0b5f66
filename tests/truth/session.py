"""Runs the fuzzer from a test, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .libraries import ENVIRONMENT


def fuzz(
    *arguments: str, module: str = "truth.run"
) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer with these arguments."""
    tests = str(Path(__file__).parents[1])
    paths = filter(None, [tests, os.environ.get("PYTHONPATH")])
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=ENVIRONMENT | os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
