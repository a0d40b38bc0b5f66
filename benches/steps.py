"""Count the instructions of a call, by single steps of the processor.

Unlike callgrind, which `instructions.py` uses, this emulates nothing, so every library
runs under it, and at its usual speed but for the call: a step takes about 20 us.
Threads that the call starts or waits for are not counted.
"""

import ctypes
import gc
import os
import platform
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import dlx._core

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
# From <sys/ptrace.h>.
TRACE_ME, CONTINUE, DETACH = 0, 7, 17
WARM_UP = 200


class Steps(NamedTuple):
    """Instructions of one call."""

    all: int
    dlx: int  # in dlx's extension, without callees


def library() -> ctypes.CDLL:
    """Compile `steps.c`."""
    target = BUILD / f"steps-{platform.machine()}.so"
    target.parent.mkdir(exist_ok=True)
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC"]
    command += [str(HERE / "steps.c"), "-o", str(target)]
    subprocess.run(command, check=True)
    made = ctypes.CDLL(str(target))
    made.steps.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 2, ctypes.c_void_p]
    made.steps.restype = ctypes.c_long
    return made


def code() -> tuple[int, int]:
    """Return where the code of dlx's extension begins and ends."""
    own = dlx._core.__file__
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, flags, *_, path = line.split()
        if path == own and "x" in flags:
            begin, _, end = addresses.partition("-")
            return int(begin, 16), int(end, 16)
    raise RuntimeError(f"no code of {own} is mapped")


def traced(call: Callable[[], object]) -> None:
    """Warm up, and stop before and after a call."""
    gc.disable()
    for _ in range(WARM_UP):
        call()
    if ctypes.CDLL(None).ptrace(TRACE_ME, 0, 0, 0):
        raise OSError("ptrace is not allowed here")
    stop, why = signal.raise_signal, signal.SIGSTOP
    # At the first of them the interpreter does what it need not do again.
    for run in (call, call, bool):
        stop(why)
        run()


def counted(call: Callable[[], object], tool: ctypes.CDLL) -> Steps:
    """Count a call that was made before, in a process forked from this one."""
    pid = os.fork()
    if pid == 0:
        try:
            traced(call)
        finally:
            os._exit(0)
    begin, end = code()
    inside = ctypes.c_long()
    os.waitpid(pid, 0)
    tool.ptrace(CONTINUE, pid, 0, 0)
    os.waitpid(pid, 0)
    every = tool.steps(pid, begin, end, ctypes.byref(inside))
    tool.ptrace(DETACH, pid, 0, 0)
    os.waitpid(pid, 0)
    if every < 0:
        raise RuntimeError("the process ended, or cannot be traced")
    return Steps(every, inside.value)


def nothing() -> None:
    """The call of which the others are the difference."""
