"""Threads that work at once: in turns, or in parallel where Python has no GIL."""

import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

R = TypeVar("R")
T = TypeVar("T")

THREADS = 8

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""Whether this Python was built to have no GIL."""


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads that share a GIL take turns between almost any two bytecodes."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def together(work: Callable[[int], R]) -> list[R]:
    """Return what `work` returns in each of `THREADS` threads that start at once."""
    barrier = threading.Barrier(THREADS)

    def run(index: int) -> R:
        barrier.wait()
        return work(index)

    with _short_turns(), ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def in_step(work: Callable[[T], R], items: Sequence[T]) -> list[tuple[R, R]]:
    """Return what `work` returns in two threads, which begin each item together.

    Threads that start at once are soon apart; these meet within less than a microsecond
    where each has a core.
    """
    reached = [0, 0]

    def run(index: int) -> list[R]:
        results = []
        try:
            for number, item in enumerate(items, 1):
                reached[index] = number
                while reached[1 - index] < number:
                    pass
                results.append(work(item))
        finally:
            # Nobody waits for a thread that has failed.
            reached[index] = sys.maxsize
        return results

    with _short_turns(), ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    return list(zip(first, second, strict=True))
