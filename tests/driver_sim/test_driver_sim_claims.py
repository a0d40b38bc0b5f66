"""The simulated driver answers what the tests on a GPU expect of the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu.claims import CLAIMS, Codes
from gpu.expected import SIMULATED
from support.simulated_driver import library_path


def answers(name: str) -> Codes:
    """What it answers, in a process of its own."""
    command = [sys.executable, "-m", "gpu.claims", name]
    tests = Path(__file__).parents[1]
    env = os.environ | {"DLX_LIBCUDA": str(library_path())}
    ran = subprocess.run(command, cwd=tests, env=env, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    said: dict[str, Codes] = json.loads(ran.stdout)
    return said[name]


@pytest.mark.parametrize("name", CLAIMS)
def test_the_simulation_answers_like_the_table(name: str) -> None:
    """It is never kinder than the real one, whose answers `gpu/expected.py` has."""
    assert answers(name) == SIMULATED[name]
