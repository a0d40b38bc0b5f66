"""Processes: the zygotes of a target, and the children that they fork.

`zygotes` starts them. `Zygote.run` has a child work and returns how that ended. A child
that ends early or is silent for too long has told by its journal in which check, and in
which step of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dlx_check.conformance import zygote
from dlx_check.conformance.target import CannotCheck
from dlx_check.conformance.zygote import JOURNAL, Journal

__all__ = ["Batch", "Zygote", "zygotes"]

IMPORT = 120.0
"""Seconds that the import of a target may take."""

_START = (
    "import json, runpy, sys; task = json.loads(sys.argv[1]); sys.path[:] = task[0]; "
    "runpy.run_path(task[1])['serve'](*task[2:])"
)


@dataclass
class Batch:
    """How a child ended: what it wrote, and its status."""

    lines: list[dict[str, Any]]
    status: int | None
    """The exit code, the negative signal, or None if it was ended for its silence."""
    output: str

    @property
    def ended(self) -> bool:
        """Return whether it came to its end."""
        return bool(self.lines) and "end" in self.lines[-1]


class Zygote:
    """A process that has imported one target, and forks children that work."""

    def __init__(self, wire: socket.socket) -> None:
        """Talk to a process that starts; `answer` waits until it is ready."""
        self._wire = wire
        self._folder = tempfile.TemporaryDirectory(prefix="dlx-check-")
        self._pending = b""
        self._answer: dict[str, Any] | None = None

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    def answer(self) -> dict[str, Any]:
        """Return what it said of its import: "version", or why it "cannot"."""
        if self._answer is None:
            found = self._receive(IMPORT)
            self._answer = (
                found
                if found is not None
                else {"cannot": f"no end of the import in {IMPORT:.0f} s"}
            )
        return self._answer

    def _receive(self, timeout: float) -> dict[str, Any] | None:
        end = time.monotonic() + timeout
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._wire], [], [], left)[0]:
                return None
            got = self._wire.recv(65536)
            if not got:
                return {"cannot": "it ended the process", "status": None}
            self._pending += got
        line, _, self._pending = self._pending.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def run(
        self,
        work: Any,
        silence: float,
        each: Callable[[dict[str, Any]], None] = lambda line: None,
    ) -> Batch:
        """Have a child work, and call `each` with its lines as they come."""
        for name in ("journal", "output"):
            with open(self._path(name), "wb") as file:
                file.truncate(JOURNAL if name == "journal" else 0)
        journal = Journal(self._path("journal"))
        command = {
            "work": work,
            "journal": self._path("journal"),
            "output": self._path("output"),
        }
        with contextlib.suppress(BrokenPipeError):
            self._wire.sendall(json.dumps(command).encode() + b"\n")
        started = self._receive(30)
        if started is None or "pid" not in started:
            raise CannotCheck("the process that forks for the target has ended")
        lines: list[dict[str, Any]] = []
        heard = time.monotonic()
        status: int | None = None
        try:
            while True:
                ended = self._receive(0.05)
                new = list(journal.lines())
                for line in new:
                    each(line)
                lines += new
                if ended is not None:
                    status = ended["status"]
                    break
                if new:
                    heard = time.monotonic()
                elif time.monotonic() - heard > silence:
                    self.end(started["pid"])
                    self._receive(30)
                    break
        finally:
            # What the target has forked goes, too, and all of it on an interrupt.
            self.end(started["pid"])
        with open(self._path("output"), "rb") as file:
            output = file.read()[-4000:].decode("utf-8", "replace")
        return Batch(lines, status, output)

    @staticmethod
    def end(group: int) -> None:
        """End a group of processes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def close(self) -> None:
        """Remove its files."""
        self._wire.close()
        self._folder.cleanup()


@contextlib.contextmanager
def zygotes(target: str = "", imports: str = "") -> Iterator[list[Zygote]]:
    """Start the zygotes of checks, of programs, or of both, in this order.

    That of checks loads `target`, that of programs runs `imports`. Both are one process
    until the library has been imported.
    """
    pairs = [socket.socketpair() if text else None for text in (target, imports)]
    theirs = [pair[1].fileno() if pair else -1 for pair in pairs]
    task = json.dumps([sys.path, zygote.__file__, target, imports, *theirs])
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, task],
            pass_fds=[each for each in theirs if each >= 0],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    found = []
    for pair in pairs:
        if pair:
            pair[1].close()
            found.append(Zygote(pair[0]))
    try:
        yield found
    finally:
        for each in found:
            each.close()
        # With what the target has started.
        Zygote.end(process.pid)
        process.wait()
