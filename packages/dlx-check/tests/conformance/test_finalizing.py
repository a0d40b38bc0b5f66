"""The end of an interpreter: what is slow, and what never ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from dlx_check.conformance.finalizing import _ended

BUSY = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"


@pytest.fixture
def busy() -> Iterator[int]:
    """Have another process use a processor; give its number."""
    number = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", BUSY, str(number)])
    yield number
    process.kill()
    process.wait()


def child(work: Callable[[], object]) -> int:
    """Fork a process that works, and ends well."""
    started = os.fork()
    if not started:
        work()
        os._exit(0)
    return started


def work(seconds: float) -> None:
    """Use a processor for this long, whenever it can be had."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        continue


def test_an_end_that_waits_for_a_processor_is_no_hang(busy: int) -> None:
    """R14, README.md: what else a machine does changes no result."""

    def late() -> None:
        os.sched_setaffinity(0, [busy])
        os.nice(19)
        work(0.05)

    told: list[int] = []
    assert _ended(child(late), 0.3, lambda: told.append(1)) == "code 0"
    assert told


@pytest.mark.parametrize("never", [lambda: time.sleep(1000), lambda: work(1000)])
def test_what_waits_or_works_without_an_end_is_ended(
    never: Callable[[], object],
) -> None:
    """R14, README.md: nothing hangs."""
    made = child(never)
    assert _ended(made, 0.3, lambda: None) is None
    with pytest.raises(ProcessLookupError):
        os.kill(made, 0)


def test_a_signal_is_named() -> None:
    """R14: the process ends by it."""
    made = child(lambda: os.kill(os.getpid(), signal.SIGABRT))
    assert _ended(made, 5, lambda: None) == "SIGABRT"
