"""Measure how costs grow: with arguments, dimensions, types, threads, tensors, bytes.

    python benches/scaling.py [--quick] [--json]

Times are minima of alternating samples; memory is the resident size of a separate
process. `--json` writes to `build/results`.
"""

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import torch
import tvm_ffi
from results import Document, dump, machine, place

ROUNDS = 30
QUICK_ROUNDS = 5
SAMPLE_NS = 1e6


def shortest(
    statements: dict[str, tuple[str, dict[str, Any]]], rounds: int
) -> dict[str, float]:
    """Time statements in turn; return the minimum ns of each."""
    timers, calls = {}, {}
    for name, (statement, scope) in statements.items():
        timer = timeit.Timer(statement, globals=scope)
        timer.timeit(1)
        each = timer.timeit(3) / 3 * 1e9
        timers[name], calls[name] = timer, max(1, round(SAMPLE_NS / each))
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(rounds):
        for name, timer in timers.items():
            n = calls[name]
            best[name] = min(best[name], timer.timeit(n) / n * 1e9)
    return best


def arguments(rounds: int) -> Document:
    """Time calls of a tvm-ffi function with 1 to 64 tensors of dlx and of torch."""
    nop = tvm_ffi.get_global_func("testing.nop")
    counts = (1, 2, 4, 8, 16, 32, 64)
    makers: dict[str, Callable[[], Any]] = {
        "dlx": lambda: dlx.from_dlpack(np.ones((3, 4), np.float32)),
        "torch": lambda: torch.ones(3, 4),
    }
    found: Document = {}
    for kind, make in makers.items():
        every = [make() for _ in range(max(counts))]
        statements = {
            str(n): ("nop(*xs)", {"nop": nop, "xs": every[:n]}) for n in counts
        }
        found[f"tvm-ffi call, {kind} tensors"] = shortest(statements, rounds)
    return found


def dimensions(rounds: int) -> Document:
    """Time imports and exports of tensors with 0 to 32 dimensions."""
    statements: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
        "dlx.from_dlpack(ndarray)": {},
        "dlx.from_dlpack(torch)": {},
        "np.from_dlpack(dlx)": {},
    }
    for ndim in (0, 1, 2, 4, 8, 16, 24, 32):
        a = np.ones((2,) * min(ndim, 4) + (1,) * (ndim - 4), np.float32)
        scope = {"a": a, "t": torch.from_numpy(a), "d": dlx.from_dlpack(a)}
        scope |= {"from_dlpack": dlx.from_dlpack, "np": np}
        for path, call in zip(
            statements,
            ("from_dlpack(a)", "from_dlpack(t)", "np.from_dlpack(d)"),
            strict=True,
        ):
            statements[path][str(ndim)] = (call, scope)
    return {path: shortest(each, rounds) for path, each in statements.items()}


def types(rounds: int) -> Document:
    """Time imports of instances of 1 to 1000 classes in turn: ns per call."""
    classes = [type(f"Array{i}", (np.ndarray,), {}) for i in range(1000)]
    a = np.ones((3, 4), np.float32)
    every: list[Any] = [a.view(each) for each in classes]
    statement = "for x in xs: from_dlpack(x)"
    statements = {
        str(n): (statement, {"xs": every[:n], "from_dlpack": dlx.from_dlpack})
        for n in (1, 10, 30, 100, 300, 1000)
    }
    best = shortest(statements, rounds)
    return {"subclasses of ndarray": {n: ns / int(n) for n, ns in best.items()}}


def threads(rounds: int) -> Document:
    """Time calls in 1 to 8 threads that hold the GIL in turn: ns per call."""
    calls = 100_000
    kinds = {
        "dlx.from_dlpack(ndarray)": (dlx.from_dlpack, np.ones((3, 4), np.float32)),
        "dlx.from_dlpack(torch)": (dlx.from_dlpack, torch.ones(3, 4)),
        "a Python function": (id, None),
    }
    found: Document = {}
    for path, (function, x) in kinds.items():
        found[path] = {}
        for count in (1, 2, 4, 8):
            best = float("inf")
            for _ in range(max(3, rounds // 6)):
                each = calls // count

                def work(n: int = each, f: Any = function, x: Any = x) -> None:
                    for _ in range(n):
                        f(x)

                workers = [threading.Thread(target=work) for _ in range(count)]
                start = time.perf_counter_ns()
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                best = min(best, (time.perf_counter_ns() - start) / (each * count))
            found[path][str(count)] = best
    return found


LIVE = """
import gc, json, sys, time
import dlx, numpy as np
kind, n = sys.argv[1], int(sys.argv[2])
a = np.ones((3, 4), np.float32)
d = dlx.from_dlpack(a)
from dlx import from_dlpack
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
kept = [None] * n
gc.disable()
before, start = resident(), time.perf_counter_ns()
if kind == "tensors":
    for i in range(n): kept[i] = from_dlpack(a)
else:
    for i in range(n): kept[i] = d.__dlpack__(max_version=(1, 3))
made, middle = time.perf_counter_ns(), resident()
made -= start
start = time.perf_counter_ns()
kept.clear()
gone = time.perf_counter_ns() - start
print(json.dumps({"bytes": (middle - before) / n, "ns to make": made / n,
    "ns to free": gone / n}))
"""


def live(most: int) -> Document:
    """Measure bytes and ns per object, for up to `most` live tensors and exports."""
    found: Document = {}
    for kind in ("tensors", "exports"):
        for power in range(3, len(str(most))):
            command = [sys.executable, "-c", LIVE, kind, str(10**power)]
            ran = subprocess.run(command, check=True, capture_output=True, text=True)
            for what, value in json.loads(ran.stdout).items():
                found.setdefault(f"{kind}: {what}", {})[str(10**power)] = value
    return found


def copies(rounds: int) -> Document:
    """Measure copies of 64 MiB: GB/s written, by dlx, NumPy and torch."""
    n = 4096
    a = np.arange(n * n, dtype=np.float32).reshape(n, n)
    wide = np.broadcast_to(a[0], (n, n))
    tall = np.broadcast_to(a[:, :1], (n, n))
    deep = np.broadcast_to(a[:16].reshape(256, 1, 256), (256, 256, 256))
    packed = four_bit(a)
    t = torch.from_numpy(a)
    scope: dict[str, Any] = {"np": np, "a": a, "aT": a.T, "wide": wide, "t": t}
    scope |= {"tall": tall, "deep": deep, "ttall": t[:, :1].expand(n, n)}
    scope["tdeep"] = t[:16].reshape(256, 1, 256).expand(256, 256, 256)
    scope |= {"tT": t.T, "twide": t[0].expand(n, n), "packed": packed}
    scope |= {"contiguous": torch.contiguous_format, "from_dlpack": dlx.from_dlpack}
    scope["bytes_"] = a.view(np.uint8)
    form = "from_dlpack({}, copy=True)"
    layouts = {
        "compact": ("a", "np.copy(a)", "t.clone()"),
        "transposed": (
            "aT",
            "aT.copy(order='C')",
            "tT.clone(memory_format=contiguous)",
        ),
        "broadcast rows": (
            "wide",
            "wide.copy(order='C')",
            "twide.clone(memory_format=contiguous)",
        ),
        "broadcast columns": (
            "tall",
            "tall.copy(order='C')",
            "ttall.clone(memory_format=contiguous)",
        ),
        "broadcast between": (
            "deep",
            "deep.copy(order='C')",
            "tdeep.clone(memory_format=contiguous)",
        ),
        "4-bit, compact": ("packed", "np.copy(bytes_)", None),
    }
    found: Document = {}
    for layout, (name, numpy_code, torch_code) in layouts.items():
        codes = {"dlx": form.format(name), "numpy": numpy_code, "torch": torch_code}
        statements = {k: (code, scope) for k, code in codes.items() if code}
        best = shortest(statements, max(5, rounds // 3))
        found[layout] = {library: a.nbytes / ns for library, ns in best.items()}
    return found


def four_bit(a: Any) -> dlx.Tensor:
    """View the bytes of an array as 4-bit integers."""
    return dlx.from_pointer(a.ctypes.data, (a.nbytes * 2,), "int4", owner=a)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", action="store_true", help="write to build/results")
    options = parser.parse_args()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    modules = {"torch": torch}
    about = machine(modules, "benches/scaling.py")
    about["gil"] = getattr(sys, "_is_gil_enabled", lambda: True)()
    gc.disable()
    parts: dict[str, tuple[str, Callable[[], Document]]] = {
        "arguments": ("ns per call", lambda: arguments(rounds)),
        "dimensions": ("ns per call", lambda: dimensions(rounds)),
        "types": ("ns per call", lambda: types(rounds)),
        "threads": ("ns per call, over all threads", lambda: threads(rounds)),
        "live": ("of each", lambda: live(10**5 if options.quick else 10**7)),
        "copies": ("GB/s written", lambda: copies(rounds)),
    }
    measured: Document = {}
    for name, (unit, measure) in parts.items():
        values = measure()
        measured[name] = {"unit": unit, "values": values}
        for path, points in values.items():
            line = "  ".join(f"{k}: {v:.4g}" for k, v in points.items())
            print(f"{name}, {unit}: {path}: {line}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak of memory: {peak / 1024:.0f} MiB")
    if options.json:
        target = place("scaling")
        dump({"machine": about, "parts": measured}, target)
        print(f"written to {os.path.relpath(target)}")


if __name__ == "__main__":
    main()
