"""Processes of the kit, which may hang or crash without ending it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_kit.groups import Group

POLL_S = 0.1
OUTPUT = 4000
"""Characters that are kept of what a process printed last."""

Result = dict[str, Any]


class Environment:
    """The Python that runs the tests, and its variables."""

    def __init__(self, root: Path, python: Path) -> None:
        """Have the tests found by their imports."""
        self.root, self.python = root, python
        paths = [str(root / "tests"), os.environ.get("PYTHONPATH", "")]
        self.variables = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        calls = root / "driver_calls.so"
        if calls.exists():
            self.variables["DLX_DRIVER_CALLS"] = str(calls)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def last_of(output: Path) -> str:
    """What a process printed last."""
    return output.read_text(errors="replace")[-OUTPUT:]


@dataclass
class Progress:
    """What the log says of the tests of one process."""

    log: Path
    tests: dict[str, Result]
    found: list[str]
    running: str = ""
    since: float = field(default_factory=time.monotonic)
    _read: int = 0

    def update(self) -> None:
        """Read what is new in the log."""
        lines = self.log.read_text().splitlines(keepends=True)
        new = [line for line in lines[self._read :] if line.endswith("\n")]
        self._read += len(new)
        for entry in map(json.loads, new):
            if "started" in entry:
                self.running, self.since = entry["started"], time.monotonic()
            elif "ended" in entry:
                self.running, self.since = "", time.monotonic()
                self.found += entry["found"]
            else:
                self.add(entry.pop("test"), entry)

    def add(self, name: str, entry: Result) -> None:
        """Note how a test went; that it failed stays, whatever is said later."""
        known = self.tests.get(name)
        if known is None or known["outcome"] in ("passed", "skipped"):
            self.tests[name] = entry

    def stopped(self, outcome: str, said: str) -> str:
        """Note that the test that was running did not end, and give its name."""
        name, self.running = self.running, ""
        if name:
            seconds = round(time.monotonic() - self.since, 1)
            entry = {"outcome": outcome, "seconds": seconds, "said": said}
            self.tests[name] = entry
        return name


def run_tests(
    group: Group, files: list[Path], environment: Environment, seconds: float
) -> Result:
    """Run files of tests; what follows a hung or crashed one, in a new process."""
    end = time.monotonic() + seconds
    tests: dict[str, Result] = {}
    result: Result = {"tests": tests, "found": [], "commands": [], "stopped": ""}
    result["output"] = ""
    with tempfile.TemporaryDirectory() as folder:
        again = True
        while again:
            command = [str(environment.python), "-m", "pytest", "-p", "gpu_kit.log"]
            command += ["-p", "no:cacheprovider", "-q", "-rs"]
            command += [str(file.relative_to(environment.root)) for file in files]
            command += ["-k", group.only] if group.only else []
            result["commands"].append(" ".join(command))
            command += [f"--deselect={name}" for name in tests]
            log, output = Path(folder, "log"), Path(folder, "output")
            log.write_text("")
            progress = Progress(log, tests, result["found"])
            with output.open("wb") as file:
                process = subprocess.Popen(
                    command,
                    cwd=environment.root,
                    env=environment.variables | {"GPU_KIT_LOG": str(log)},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                again = watch(process, progress, group, end, result)
            result["output"] = last_of(output)
    return result


def watch(
    process: subprocess.Popen[bytes],
    progress: Progress,
    group: Group,
    end: float,
    result: Result,
) -> bool:
    """Wait for a process within the limits; whether its other tests are to be run."""
    while process.poll() is None:
        time.sleep(POLL_S)
        progress.update()
        now = time.monotonic()
        if now > end:
            kill(process)
            progress.stopped("stopped", "the time of its group was over")
            result["stopped"] = "the time of the group was over"
            return False
        if progress.running and now - progress.since > group.test_seconds:
            kill(process)
            progress.stopped("hung", f"stopped after {group.test_seconds:.0f} s")
            return True
    progress.update()
    # An exit code of pytest's own ends a run; anything else in a test is its crash.
    return bool(progress.stopped("crashed", f"exit code {process.returncode}"))


def run_program(group: Group, environment: Environment, seconds: float) -> Result:
    """Run a program that writes its results as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        target, output = Path(folder, "results.json"), Path(folder, "output")
        arguments = [part.format(results=target) for part in group.program]
        command = [str(environment.python), *arguments]
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=environment.root,
                env=environment.variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                kill(process)
                code = None
        printed = last_of(output)
        last = (printed.strip().splitlines() or ["nothing was printed"])[-1]
        measured = json.loads(target.read_text()) if target.exists() else None
    if code is None:
        verdict, reason = "INCOMPLETE", f"stopped after {seconds:.0f} s"
    elif code == 0:
        verdict, reason = "MEASURED", ""
    elif measured is None and "nothing was measured" in last:
        verdict, reason = "NOT RUN", last
    else:
        verdict, reason = "1 FAILED", last
    return {
        "verdict": verdict,
        "reason": reason,
        "commands": [" ".join(command)],
        "measured": measured,
        "output": printed,
    }
