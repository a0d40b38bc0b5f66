"""Runs the suite against the reference, wrong in one way, in forks of this process."""

from __future__ import annotations

import faulthandler
import gc
import mmap
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import IO, Any

from dlx_check.conformance.isolate import Batch
from dlx_check.conformance.run import _all
from dlx_check.conformance.suite.row import Check
from dlx_check.conformance.zygote import JOURNAL, Journal, Work, _checks, _child

from conformance import reference


@cache
def _reference() -> Work:
    """Return what a child does; the fault is chosen there."""
    return _checks("conformance.reference:target", {})


class Forking:
    """What `Zygote` is, without a process that forks."""

    def __init__(self, fault: str) -> None:
        """Be wrong in this way."""
        self.fault = fault
        self.work = _reference()

    def run(
        self,
        ids: Any,
        silence: float,
        each: Callable[[dict[str, Any]], None] = lambda line: None,
    ) -> Batch:
        """Have a child work."""
        # Without names: a child may end its interpreter, and finalizers with it.
        with tempfile.TemporaryFile() as journal, tempfile.TemporaryFile() as output:
            journal.truncate(JOURNAL)
            read = Journal(mmap.mmap(journal.fileno(), JOURNAL))
            child = os.fork()
            if child == 0:
                reference.FAULT = self.fault
                # What pytest holds is not looked through, and it prints no crash.
                gc.freeze()
                faulthandler.disable()
                _child(ids, journal.fileno(), output.fileno(), self.work)
            return self._wait(child, read, output, silence)

    def _wait(
        self, child: int, read: Journal, output: IO[bytes], silence: float
    ) -> Batch:
        ended = os.pidfd_open(child)
        lines: list[dict[str, Any]] = []
        heard = time.monotonic()
        while True:
            done = select.select([ended], [], [], 0.05)[0]
            new = [*read.lines()]
            lines += new
            heard = time.monotonic() if new else heard
            if done or time.monotonic() - heard > silence:
                break
        if not done:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(ended)
        said = os.pread(output.fileno(), 4000, 0).decode(errors="replace")
        return Batch(lines, status if done else None, said)


def found(fault: str, checks: Iterable[Check]) -> set[str]:
    """Return the rows that find a fault."""
    chosen = {check.id: check for check in checks}
    seen = _all(Forking(fault), chosen, 2.0)  # type: ignore[arg-type]
    failed = {
        name for name, result in seen.items() if result[0] not in ("meets", "fact")
    }
    assert not {name for name in failed if seen[name][0] == "error"}, seen
    return failed
