"""Run the matrix in a fresh process, from which the pairs are forked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .cells import Cell
from .matrix import ENVIRONMENT, Pair, load, run, versions

MARK = "results: "
"""Marks the line of results, because libraries print, too."""


def results() -> tuple[list[Pair], dict[str, str], dict[str, str]]:
    """Return all pairs, the versions of the libraries, and the missing ones."""
    tests = str(Path(__file__).parents[1])
    paths = filter(None, [tests, os.environ.get("PYTHONPATH")])
    ran = subprocess.run(
        [sys.executable, "-m", "interop.run"],
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    found = [line for line in ran.stdout.splitlines() if line.startswith(MARK)]
    if not found:
        raise RuntimeError(ran.stderr)
    pairs, installed, missing = json.loads(found[-1].removeprefix(MARK))
    return (
        [
            Pair(producer, consumer, [Cell(*cell) for cell in cells])
            for producer, consumer, cells in pairs
        ],
        installed,
        missing,
    )


if __name__ == "__main__":
    absent = load()
    print(MARK + json.dumps([list(run(absent)), versions(), absent]))
