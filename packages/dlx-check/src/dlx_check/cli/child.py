"""Runs a function of the command line in a child process, which a library may crash.

Some libraries crash on import or use, beside another library or without a driver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from typing import Any

from dlx_check.cli.command import CannotRun, Progress, Silent

__all__ = ["Ended", "in_child", "serve"]

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
    last, answers = "", {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            kind, value = json.loads(line)
            if kind == "begin":
                progress.begin(value)
            elif kind == "step":
                last = value
                progress.step(value)
            else:
                answers[kind] = value
    if "cannot run" in answers:
        raise CannotRun(answers["cannot run"])
    if "result" not in answers:
        raise Ended(_how(process.returncode), last)
    return answers["result"]


def _how(code: int) -> str:
    if code < 0:
        return f"ended the process by {signal.Signals(-code).name}"
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
