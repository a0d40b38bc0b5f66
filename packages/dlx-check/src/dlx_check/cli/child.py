"""Runs a function of the command line in a child process, which a library may crash.

Some libraries crash on import or use, beside another library or without a driver. Some
leave a process behind, which has the child's descriptors, or write into all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

from dlx_check.cli.command import CannotRun, Progress, Silent
from dlx_check.held import Held, signal_name

__all__ = ["Ended", "in_child", "serve"]

LIMIT = 120.0
"""Seconds in which a child has to say something, as each step does."""

_START = "import json, sys; task = json.loads(sys.argv[1]); sys.path[:] = task[0]; "
_START += "from dlx_check.cli.child import serve; serve(*task[1:])"


class Ended(Exception):
    """The process ended before the function returned; the message says how."""

    def __init__(self, how: str, step: str) -> None:
        """Store how it ended, and the step that was running."""
        super().__init__(how)
        self.step = step


def in_child(
    module: str, function: str, *arguments: Any, progress: Progress | None = None
) -> Any:
    """Call ``module.function(progress, *arguments)`` in a new interpreter.

    Arguments and the result must fit into JSON. The child's output goes to stderr.
    Raises `Ended`, and `CannotRun` if the function does.
    """
    progress = progress or Silent()
    task = json.dumps([sys.path, module, function, arguments])
    command = [sys.executable, "-c", _START, task]
    last = ""
    with Held(partial(_started, command)) as process:
        for kind, value in _answers(process):
            if kind == "begin":
                progress.begin(value)
            elif kind == "step":
                last = value
                progress.step(value)
            elif kind == "cannot run":
                raise CannotRun(value)
            elif kind == "silent":
                raise Ended(f"has no end in {LIMIT:.0f} s", last)
            elif kind == "result":
                return value
    # The process was ended if it had closed the pipe and gone on.
    raise Ended(_how(process.returncode), last)


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, and end its group."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        yield process
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _answers(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, Any]]:
    """Give what comes, until the process has ended or is silent for too long."""
    assert process.stdout is not None
    descriptor, pending, heard = process.stdout.fileno(), b"", time.monotonic()
    while True:
        ended = process.poll() is not None
        if select.select([descriptor], [], [], 0 if ended else 0.1)[0]:
            got = os.read(descriptor, 65536)
            *lines, pending = (pending + got).split(b"\n")
            for line in lines:
                heard = time.monotonic()
                try:
                    kind, value = json.loads(line)
                except (ValueError, TypeError):
                    # A library has written to this pipe, too.
                    continue
                yield str(kind), value
            if not got:
                return
        elif ended:
            # Another process has the pipe.
            return
        elif time.monotonic() - heard > LIMIT:
            yield "silent", None


def _how(code: int) -> str:
    if code < 0:
        return f"ended the process by {signal_name(-code)}"
    return f"ended the process with exit code {code}"


class _Pipe:
    """A `Progress` that reports to the parent through the pipe of the result."""

    def __init__(self) -> None:
        # C code may print to stdout, so send that to stderr and keep the pipe.
        self._pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def answer(self, kind: str, value: Any) -> None:
        print(json.dumps([kind, value]), file=self._pipe, flush=True)

    def begin(self, total: int) -> None:
        self.answer("begin", total)

    def step(self, text: str) -> None:
        self.answer("step", text)


def serve(module: str, function: str, arguments: list[Any]) -> None:
    """Run in the child: call the function, send the result, exit without cleanup."""
    pipe = _Pipe()
    try:
        called = getattr(import_module(module), function)
        pipe.answer("result", called(pipe, *arguments))
    except CannotRun as reason:
        pipe.answer("cannot run", str(reason))
    # Skip the libraries' exit handlers, which may crash as well.
    os._exit(0)
