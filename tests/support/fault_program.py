"""Runs each step with each of its allocations failing once, and prints what happened.

A program of its own, started by `test_faults` with `faults.c` loaded before all else.
Each attempt runs in a forked process, so that one which ends does not end the others.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from support import fault_steps
from support.fault_steps import STEPS, WATCHED

KINDS = ("Python's", "dlx's")
EVERY = int(os.environ.get("DLX_FAULTS_EVERY", "1"))
OFFSET = int(os.environ.get("DLX_FAULTS_FROM", "0"))
SHIM = ctypes.PyDLL(os.environ["LD_PRELOAD"])
SHIM.faults_disarm.restype = ctypes.c_int64
SHIM.faults_arm.argtypes = (ctypes.c_int, ctypes.c_int64)
SHIM.faults_watch.argtypes = (ctypes.c_size_t, ctypes.c_size_t)


def look() -> list[int]:
    """Count the references to what no step may keep."""
    gc.collect()
    return [sys.getrefcount(each) for each in WATCHED]


def counted(kind: int, step: Callable[[], Any]) -> int:
    """Count the allocations of a step that has run before."""
    SHIM.faults_arm(kind, -1)
    step()
    return int(SHIM.faults_disarm(kind))


def attempt(kind: int, at: int, step: Callable[[], Any]) -> str:
    """Run a step with one allocation failing; say what came of it."""
    before = look()
    text = "passed"
    try:
        SHIM.faults_arm(kind, at)
        step()
        SHIM.faults_disarm(kind)  # It allocates, too.
    except BaseException as error:
        SHIM.faults_disarm(kind)
        kinds, cause = [type(error).__name__], error.__cause__ or error.__context__
        while cause is not None:
            kinds.append(type(cause).__name__)
            cause = cause.__cause__ or cause.__context__
        text = f"{' from '.join(kinds)}: {error}"
        del error, cause
    after = look()
    if after != before:
        names = [
            name
            for name, value in vars(fault_steps).items()
            for each, old, new in zip(WATCHED, before, after, strict=True)
            if value is each and old != new
        ]
        text += f", and keeps {names}"
    step()
    return text


def forked(kind: int, at: int, step: Callable[[], Any]) -> str:
    """Attempt in a process of its own."""
    receive, send = os.pipe()
    if not (child := os.fork()):
        os.close(receive)
        os.dup2(send, 2)
        text = attempt(kind, at, step)
        os.write(send, b"\0" + text.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        said, mark, text = pipe.read().decode(errors="replace").rpartition("\0")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status or not mark:
        return f"ended with {status}: {said + text}"
    noise = f", and wrote {said!r}" if said else ""
    return text + noise


def main() -> None:
    """Print what came of each attempt, a line of JSON for each step."""
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps if "dlx/_core" in line]
    first, last = lines[0][0].split("-")[0], lines[-1][0].split("-")[1]
    SHIM.faults_watch(int(first, 16), int(last, 16))
    chosen = sys.argv[1:] or list(STEPS)
    for name in chosen:
        step, answers = STEPS[name], []
        for _ in range(70):
            step()
        gc.collect()
        gc.freeze()  # What exists now need not be looked at in each process.
        for kind, of in enumerate(KINDS):
            for at in range(OFFSET, counted(kind, step), EVERY):
                answers.append((name, of, at, forked(kind, at, step)))
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
