"""Measure how calls scale with threads where Python has no GIL.

    python benches/free_threads.py [--quick] [--json]

Each thread imports its own object, or all import the same one, whose reference count
they share. With a GIL the same program shows the cost of the GIL. `--json` writes to
`build/results`.
"""

import argparse
import gc
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import Any

import dlx
import numpy as np
from results import Document, dump, machine, place

ROUNDS = 30
QUICK_ROUNDS = 5
THREADS = (1, 2, 4, 8)
CALLS = 400_000


def export(x: Any) -> Any:
    """Look up and call the method, as a consumer does."""
    return x.__dlpack__(max_version=(1, 3))


def python(x: Any) -> Any:
    """Do a little Python work, for comparison."""
    return x is None


def kinds() -> dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]]:
    """Return what is called, and what makes its argument."""
    found: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
        "dlx.from_dlpack(ndarray)": (dlx.from_dlpack, lambda: np.ones((3, 4))),
        "tensor.__dlpack__(...)": (export, lambda: dlx.from_dlpack(np.ones((3, 4)))),
        "a Python function": (python, object),
    }
    try:
        import torch
    except ImportError:
        return found
    found["dlx.from_dlpack(torch)"] = (dlx.from_dlpack, lambda: torch.ones(3, 4))
    return found


def elapsed(function: Callable[[Any], Any], xs: list[Any], calls: int) -> float:
    """Call `function` with each of `xs` in its own thread; return ns for all of it."""
    barrier = threading.Barrier(len(xs) + 1)

    def work(x: Any) -> None:
        barrier.wait()
        # A loop in C counts no references to what it calls.
        deque(map(function, repeat(x, calls)), maxlen=0)

    workers = [threading.Thread(target=work, args=(x,)) for x in xs]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter_ns()
    for worker in workers:
        worker.join()
    return time.perf_counter_ns() - start


def measured(rounds: int) -> Document:
    """Return million calls per second of all threads, by object and thread count."""
    found: Document = {}
    for path, (function, make) in kinds().items():
        for whose in ("objects of their own", "one object"):
            best = dict.fromkeys(map(str, THREADS), 0.0)
            for _ in range(max(3, rounds // 6)):
                for count in THREADS:
                    x, calls = make(), CALLS // count
                    xs = [x] * count if whose == "one object" else None
                    xs = xs or [make() for _ in range(count)]
                    rate = calls * count / elapsed(function, xs, calls) * 1e3
                    best[str(count)] = max(best[str(count)], rate)
            found[f"{path}, {whose}"] = best
            line = "  ".join(f"{k}: {v:.3g}" for k, v in best.items())
            print(f"{path}, {whose}: {line}", flush=True)
    return found


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", action="store_true", help="write to build/results")
    options = parser.parse_args()
    about = machine({}, "benches/free_threads.py")
    about["gil"] = getattr(sys, "_is_gil_enabled", lambda: True)()
    gc.disable()
    values = measured(QUICK_ROUNDS if options.quick else ROUNDS)
    unit = "million calls per second, over all threads"
    parts = {"free-threaded": {"unit": unit, "values": values}}
    if options.json:
        target = place("free-threads")
        dump({"machine": about, "parts": parts}, target)
        print(f"written to {os.path.relpath(target)}")


if __name__ == "__main__":
    main()
