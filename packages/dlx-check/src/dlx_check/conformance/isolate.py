"""Processes: the zygotes of a target, and the children that they fork.

`zygotes` starts them. `Zygote.run` has a child work and returns how that ended. A child
that ends early or is silent for too long has told by its journal in which check, and in
which step of it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from dlx_check.conformance import zygote
from dlx_check.conformance.target import CannotCheck
from dlx_check.conformance.zygote import JOURNAL, Journal, children
from dlx_check.held import Held

__all__ = ["Batch", "Zygote", "zygotes"]

IMPORT = 120.0
"""Seconds that the import of a target may take."""

_ANSWER = 30.0
"""Seconds in which a zygote forks, and tells how a child ended."""

_OUTPUT = 1 << 24
"""Bytes of what a child prints, and of a line of a zygote, that are kept."""

_START = (
    "import json, runpy, sys; task = json.loads(sys.argv[1]); sys.path[:] = task[0]; "
    "runpy.run_path(task[1])['serve'](*task[2:])"
)

_GARBLED = {"cannot": "it writes to descriptors that are not its own"}


@dataclass
class Batch:
    """How a child ended: what it wrote, and its status."""

    lines: list[dict[str, Any]]
    status: int | None
    """The exit code, the negative signal, or None if it was ended for its silence."""
    output: str
    garbled: bool = False
    """Whether the target has written over the journal."""

    @property
    def ended(self) -> bool:
        """Return whether it came to its end."""
        return bool(self.lines) and "end" in self.lines[-1]


class Zygote:
    """A process that has imported one target, and forks children that work."""

    def __init__(
        self, wire: socket.socket, files: Sequence[IO[bytes]], group: int
    ) -> None:
        """Talk to a process that starts; `answer` waits until it is ready."""
        self._wire, self._group = wire, group
        self._journal, self._output = files
        wire.settimeout(_ANSWER)
        self._pending = b""
        self._answer: dict[str, Any] | None = None

    def answer(self) -> dict[str, Any]:
        """Return what it said of its import: "version", or why it "cannot"."""
        if self._answer is None:
            found = self._receive(IMPORT)
            if found is None:
                found = {"cannot": f"no end of the import in {IMPORT:.0f} s"}
            # That of programs says nothing if all is well.
            if found and not {"cannot", "target"} & found.keys():
                found = _GARBLED
            self._answer = found
        return self._answer

    def _receive(self, timeout: float) -> dict[str, Any] | None:
        end = time.monotonic() + timeout
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._wire], [], [], left)[0]:
                return None
            got = b""
            with contextlib.suppress(OSError):
                got = self._wire.recv(65536)
            if not got:
                return {"cannot": "it ended the process"}
            self._pending += got
            if len(self._pending) > _OUTPUT:
                return _GARBLED
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return _GARBLED
        return found if isinstance(found, dict) else _GARBLED

    def run(
        self,
        work: Any,
        silence: float,
        each: Callable[[dict[str, Any]], None] = lambda line: None,
    ) -> Batch:
        """Have a child work, and call `each` with its lines as they come."""
        files = self._journal.fileno(), self._output.fileno()
        for file, size in zip(files, (JOURNAL, 0), strict=True):
            os.truncate(file, 0)
            os.truncate(file, size)
        journal = Journal(mmap.mmap(files[0], JOURNAL))
        with contextlib.suppress(OSError):
            socket.send_fds(self._wire, [b"."], files)
            self._wire.sendall(json.dumps(work).encode() + b"\n")
        child = (self._receive(_ANSWER) or {}).get("pid")
        if not isinstance(child, int):
            raise CannotCheck("the process that forks for the target has ended")
        batch = Batch([], None, "")
        heard, ended = time.monotonic(), None
        try:
            while True:
                # A child may have stopped the one that is to say how it ended.
                _signal_group(self._group, signal.SIGCONT)
                ended = self._receive(0.05)
                if ended is not None:
                    batch.status = ended.get("status")
                before = len(batch.lines)
                try:
                    for line in journal.lines():
                        each(line)
                        batch.lines.append(line)
                except (ValueError, RecursionError):
                    batch.garbled = True
                    break
                if ended is not None:
                    break
                if len(batch.lines) > before:
                    heard = time.monotonic()
                elif time.monotonic() - heard > silence:
                    break
                if os.fstat(files[1]).st_size > _OUTPUT:
                    os.truncate(files[1], 0)
        finally:
            # What the target has forked goes, too, and all of it on an interrupt.
            _signal_group(child, signal.SIGKILL)
        if ended is None:
            self._receive(_ANSWER)
        start = max(0, os.fstat(files[1]).st_size - 4000)
        said = os.pread(files[1], 4000, start).decode("utf-8", "replace")
        # Who goes on writing where it was leaves a gap before it.
        batch.output = said.replace("\0", "")
        return batch


def _signal_group(group: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, what)


def _end_all(process: int) -> None:
    """End a zygote, and all that comes from it."""
    found = [process]
    for each in found:
        # What is stopped forks no more while its children are looked for.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGSTOP)
        found += children(each)
    for each in reversed(found):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    _signal_group(process, signal.SIGKILL)


@contextlib.contextmanager
def _started(target: str, imports: str) -> Iterator[list[Zygote]]:
    with contextlib.ExitStack() as ending:
        pairs = [socket.socketpair() if text else None for text in (target, imports)]
        # Closed last: a zygote whose wire is closed ends, and leaves orphans.
        for pair in filter(None, pairs):
            ending.enter_context(pair[0])
        theirs = [pair[1].fileno() if pair else -1 for pair in pairs]
        task = json.dumps([sys.path, zygote.__file__, target, imports, *theirs])
        process = subprocess.Popen(
            [sys.executable, "-c", _START, task],
            pass_fds=[each for each in theirs if each >= 0],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        ending.callback(process.wait)
        ending.callback(_end_all, process.pid)
        found = []
        for ours, other in filter(None, pairs):
            other.close()
            files = [ending.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
            found.append(Zygote(ours, files, process.pid))
        yield found


def zygotes(target: str = "", imports: str = "") -> Held[list[Zygote]]:
    """Start the zygotes of checks, of programs, or of both, in this order.

    That of checks loads `target`, that of programs runs `imports`. Both are one process
    until the library has been imported.
    """
    return Held(partial(_started, target, imports))
