"""Rules for how long things live, and for threads."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable
from itertools import repeat
from typing import Any

from dlx_check.core import dlx

from .case import Case, description

__all__ = ["LIFE"]

_ROUNDS = 200


def _outlives(case: Case) -> None:
    case.check(
        "an export keeps the memory alive, also without the instance",
        "pass owner=self to dlx.from_pointer, or export what holds the memory",
    )
    x = case.make()
    exported = case.read(x)
    if exported.device != "cpu":
        return
    start, count = _span(exported)
    before = _memory(start, count)
    del x
    gc.collect()
    # Memory that was released is most likely taken by one of these.
    others: list[Any] = [bytearray(b"\xa5") * count for _ in range(64)]
    others += [ctypes.create_string_buffer(b"\xa5" * count, count) for _ in range(64)]
    if numpy := sys.modules.get("numpy"):
        others += [numpy.full(count, 0xA5, "u1") for _ in range(64)]
    if _memory(start, count) != before:
        raise case.broken("its elements changed when the instance was gone")


def _span(tensor: dlx.Tensor) -> tuple[int, int]:
    """Return the address and the number of the bytes that a tensor reaches."""
    steps = [
        (extent - 1) * stride * tensor.itemsize
        for extent, stride in zip(tensor.shape, tensor.strides, strict=True)
    ]
    low, high = (sum(limit(step, 0) for step in steps) for limit in (min, max))
    return tensor.data_ptr + low, min(high - low + tensor.itemsize, 1 << 20)


def _memory(start: int, count: int) -> bytes | None:
    """Read this process's memory; None if it is not mapped, or cannot be read."""
    try:
        file = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.pread(file, count, start)
    except OSError:
        return None
    finally:
        os.close(file)


def _leaves_nothing(case: Case) -> None:
    case.check(
        "exports leave nothing behind",
        "keep no reference to what is exported or to the instance",
    )
    x = case.make()

    def export() -> None:
        case.read(x)
        case.capsule(x)

    counts: dict[str, Callable[[], int]] = {
        "references to the instance": lambda: sys.getrefcount(x),
        "blocks of memory": sys.getallocatedblocks,
    }
    if case.shares_memory:
        inner = x.__dlx_export__()
        counts["references to what it exports"] = lambda: sys.getrefcount(inner)
    left = _growth(counts, export)
    if any(growth >= _ROUNDS // 2 for growth in left.values()):
        # Other threads allocate, too, and cycles are garbage that waits.
        again = _growth(counts, export, collect=True)
        left = {name: min(left[name], again[name]) for name in counts}
    for name, growth in left.items():
        if growth >= _ROUNDS // 2:
            raise case.broken(f"{_ROUNDS} exports left {growth} {name}")


def _growth(
    counts: dict[str, Callable[[], int]],
    call: Callable[[], None],
    collect: bool = False,
) -> dict[str, int]:
    """Return how much larger counts are after calls than before."""
    call()
    if collect:
        gc.collect()
    before = {name: count() for name, count in counts.items()}
    for _ in repeat(None, _ROUNDS):
        call()
    if collect:
        gc.collect()
    return {name: count() - before[name] for name, count in counts.items()}


def _is_safe_in_threads(case: Case) -> None:
    case.check(
        "threads may export at the same time",
        "keep no state of a thread or of an export in the class or the instance",
    )
    x = case.make()
    expected = description(case.read(x))
    start = threading.Barrier(4)
    wrong: list[AssertionError] = []

    def export() -> None:
        start.wait()
        try:
            for _ in range(50):
                for tensor in (case.read(x), case.capsule(x)):
                    if description(tensor) != expected:
                        raise case.broken(f"one of them got {tensor}")
        except AssertionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=export) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


LIFE = (_outlives, _leaves_nothing, _is_safe_in_threads)
