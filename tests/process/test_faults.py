"""Each allocation fails once: no crash, no leak, and `MemoryError` where one can be.

`DLX_FAULTS_EVERY=1` tries all of them, as `tests/tasks.py faults` does; otherwise
every 23rd. Blocks of at most 160 bytes that Rust allocates for itself end the process,
where std does; a small object of CPython that PyO3 makes is a `PanicException`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from support.fault_steps import STEPS

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
Outcome = tuple[str, int, str]
SMALL = 1024
"""Bytes of the largest block whose failure may end the process: of Rust's own."""

ENDED = re.compile(r"ended with -6: memory allocation of (\d+) bytes failed")
PANIC = "PanicException: "
OTHERS = (
    "returned NULL without setting an exception",  # CPython 3.11, and ufuncs of NumPy.
    "RuntimeError: can't allocate read lock",  # CPython's `threading`.
    "ArgumentError: argument",  # ctypes, of a MemoryError.
    "PicklingError: Can't pickle",  # `pickle`, of a MemoryError.
)
LEAKS = {
    # tvm_ffi's make_tensor_from_chandle forgets the tensor that it was given.
    "convert to tvm_ffi",
    "convert with a copy",
    # CPython 3.11 keeps the arguments of a frame whose cells it cannot make.
    "bridge into an array",
}
ENDS = {"bridge into an array"} if sys.version_info >= (3, 12) else set()
"""CPython gives back a code object twice if it has no memory for its function."""


@cache
def outcomes() -> dict[str, list[Outcome]]:
    """Run all steps, and return what came of each attempt."""
    with tempfile.TemporaryDirectory() as folder:
        shim = Path(folder, "faults.so")
        source = TESTS / "support" / "faults.c"
        flags = ["-O1", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, "-o", shim, source, "-ldl"], check=True)
        inherited = os.environ.get("PYTHONPATH", "")
        env = {
            "DLX_FAULTS_EVERY": "23",
            **os.environ,
            "LD_PRELOAD": str(shim),
            "PYTHONPATH": os.pathsep.join([str(TESTS), inherited]),
            "RUST_BACKTRACE": "0",
        }
        ran = subprocess.run(
            [sys.executable, "-m", "support.fault_program"],
            env=env,
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[Outcome]] = defaultdict(list)
    for line in ran.stdout.splitlines():
        for step, kind, at, text in json.loads(line):
            found[step].append((kind, at, text))
    return found


def is_right(step: str, kind: str, text: str) -> bool:
    """Whether this may happen."""
    said, _, kept = text.partition(", and keeps ")
    if kept and step not in LEAKS:
        return False
    if said.startswith("ended with -11"):
        return kind == "Python's" and step in ENDS
    if ended := ENDED.match(said):
        return kind == "dlx's" and int(ended[1]) <= SMALL
    if said.startswith(("passed", "MemoryError")):
        return True
    # PyO3 panics where CPython has no memory for an object.
    return kind == "Python's" and (
        said.startswith(PANIC) or any(other in said for other in OTHERS)
    )


needs_glibc = pytest.mark.skipif(
    sys.platform != "linux", reason="needs Linux with glibc"
)


@needs_glibc
@pytest.mark.parametrize("step", STEPS)
def test_a_failed_allocation_is_an_error(step: str) -> None:
    """R8, R11, R17: of Python's and of dlx's, each in its turn."""
    wrong = [each for each in outcomes()[step] if not is_right(step, *each[::2])]
    assert wrong == []
    assert outcomes()[step]


@needs_glibc
def test_elements_are_allocated_with_an_error() -> None:
    """R47: a copy that finds no memory raises `MemoryError`."""
    answers = [
        text
        for _, each in outcomes().items()
        for kind, _, text in each
        if kind == "dlx's" and text.startswith("MemoryError")
    ]
    assert answers
