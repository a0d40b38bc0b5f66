"""Other threads: one after the other, interleaved, or parallel without a GIL."""

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
"""Whether this Python is a free-threaded build."""


def in_thread(function: Callable[[], R]) -> R:
    """Call `function` in a new thread, and return or raise what it does."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@contextmanager
def _short_turns() -> Iterator[None]:
    """Make threads that share a GIL switch between almost any two bytecodes."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def together(work: Callable[[int], R]) -> list[R]:
    """Return the results of `work` in `THREADS` threads that start together."""
    barrier = threading.Barrier(THREADS)

    def run(index: int) -> R:
        barrier.wait()
        return work(index)

    with _short_turns(), ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def in_step(work: Callable[[T], R], items: Sequence[T]) -> list[tuple[R, R]]:
    """Return the results of `work` in two threads that start each item together.

    Threads that only start together soon drift apart; these stay within a microsecond
    of each other if each has a core.
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
            # Do not wait for a thread that has failed.
            reached[index] = sys.maxsize
        return results

    with _short_turns(), ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    return list(zip(first, second, strict=True))
