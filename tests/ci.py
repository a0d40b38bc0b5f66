#!/usr/bin/env python3
"""Run what takes long of `make ci`: lists of tasks, two at a time, one on each core.

After a failure no list begins, and those that run are waited for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

TESTS = Path(__file__).resolve().parent
AT_ONCE = 2

VARIABLES = {
    "DLX_REQUIRE_HEAVY": "1",
    "DLX_EVERY": "1",
    "FUZZ_ROUNDS": "8",
    "FUZZ_SECONDS": os.environ.get("FUZZ_SECONDS", "30"),
}
# `make nightly` runs ten times the rounds.
ROUNDS = {"LIFETIME_ROUNDS": os.environ.get("LIFETIME_ROUNDS", "100000")}
LIBRARIES = {"VENV": "build/gate"}
# There, `make test` has run dlx's own tests; these are of NumPy, torch and tvm-ffi.
OLDEST = {"DLX_REQUIRE_HEAVY": "0"}
LISTS: list[tuple[dict[str, str], str]] = [
    ({}, "ci-gate"),
    (ROUNDS, "wheel lifetime instructions-check drivers"),
    (LIBRARIES, "test-truth interop property engines oneapi"),
    (OLDEST, "ci-oldest"),
    ({}, "fuzz-rust"),
]
"""What the tasks of a list have as variables beside those, and their names."""


def install() -> None:
    """Install all that more than one list needs."""
    venv = os.environ.get("VENV") or ".venv"
    for targets in ["gate"], [f"{venv}/heavy", f"{venv}/tools"]:
        command = ["make", "--no-print-directory", *targets]
        subprocess.run(command, check=True, cwd=TESTS.parent)


def main() -> int:
    """Run all, and say how long each list took."""
    os.environ.update(VARIABLES)
    install()
    results: list[str] = []
    failed: list[str] = []

    def run(entry: tuple[dict[str, str], str]) -> None:
        """Run one list, unless another has failed."""
        if failed:
            return
        variables, tasks = entry
        start = monotonic()
        command = [sys.executable, str(TESTS / "tasks.py"), *tasks.split()]
        environment = {**os.environ, "JOBS": "0", **variables}
        status = subprocess.call(command, env=environment)
        if status:
            failed.append(tasks)
        said = "FAILED" if status else "ok"
        results.append(f"{monotonic() - start:6.0f} s  {tasks}: {said}")
        print(results[-1], flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, LISTS))
    print("\n".join(["", *results]))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
