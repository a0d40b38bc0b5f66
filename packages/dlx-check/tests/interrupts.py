"""Interrupts of a call at every place, and what they leave."""

from __future__ import annotations

import gc
import random
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

__all__ = ["interrupted"]


class _Stop(BaseException):
    """What the handler of the signal raises."""


def interrupted(call: Callable[[], object], times: int) -> int:
    """Interrupt calls as often as this; return how many descriptors they have left.

    A timer of the kernel, whose handler runs between any two bytecodes, ends behind a
    random part of the time that a call takes.
    """

    armed = False

    def stop(*_: object) -> None:
        # The handler may come late, when the call is over.
        if armed:
            raise _Stop

    call()
    began = time.perf_counter()
    call()
    longest = 1.2 * (time.perf_counter() - began)
    chance = random.Random(2)
    before, stops = _descriptors(), 0
    old = signal.signal(signal.SIGALRM, stop)
    with warnings.catch_warnings():
        # Of files that nobody has closed but their deallocation, which is the point.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            while stops < times:
                try:
                    armed = True
                    wait = chance.random() * longest + 1e-6
                    signal.setitimer(signal.ITIMER_REAL, wait)
                    call()
                    armed = False
                except _Stop:
                    armed = False
                    stops += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        return _settled(before)


def _settled(before: int) -> int:
    """Return how many descriptors stay that were not there before."""
    for _ in range(200):
        gc.collect()
        if _descriptors() <= before:
            return 0
        # What another thread closes, it closes soon.
        time.sleep(0.01)
    return _descriptors() - before


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
