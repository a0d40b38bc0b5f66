"""Time the two sides of a row in turn, in one process, and compare the results.

Nothing is subtracted, because both sides pay for the same loop. A ratio is the median
of those of the rounds: a round times both sides within 4 ms, so that other load and the
clock of the processor change both. The minimum of a side is what it takes alone.
"""

import ast
import gc
import os
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field

from cases import Clock, Row
from objects import Scope

Sampler = Callable[[int], float]  # number of calls -> ns per call

SAMPLE_NS = 2e6
LEAST_ROUNDS = 5
COUNTED = 1000  # calls
NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class Effort:
    """The limits for a row: a number of rounds, and about a number of ns."""

    rounds: int
    row_ns: float


FULL = Effort(rounds=200, row_ns=3e9)
QUICK = Effort(rounds=25, row_ns=0.5e9)


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per call over all samples of one side."""

    minimum: float
    median: float
    samples: int
    calls_per_sample: int


@dataclass(frozen=True)
class Result:
    """A row with its timings; for a side that cannot run, the reason.

    `counts` are what a call of `ours` asks of others, where the scope counts that.
    """

    row: Row
    ours: Timing | str
    theirs: Timing | str
    counts: dict[str, float] = field(default_factory=dict)
    ratio: float | None = None

    @property
    def value(self) -> float | None:
        """The ratio; for an absolute row, the medians' difference in ms."""
        if isinstance(self.ours, str) or isinstance(self.theirs, str):
            return None
        if self.row.absolute:
            return (self.ours.median - self.theirs.median) / 1e6
        return self.ratio


def missing(code: str, scope: Scope) -> bool:
    """Whether `code` reads or imports a name that it does not have from `scope`."""
    names: set[str] = set()
    bound = {"n"}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (names if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return not names <= scope.keys() | bound


def sampler(clock: Clock, code: str, scope: Scope) -> Sampler:
    """Return a function that runs `code` a number of times and returns ns per call."""
    if clock is Clock.LOOP:
        expression = compile(code, "<bench>", "eval")
        return lambda n: eval(expression, scope, {"n": n})
    if clock is Clock.PROCESS:
        return lambda _: _run(code)
    timer = timeit.Timer(code, globals=scope)
    return lambda n: timer.timeit(n) / n * 1e9


def _run(code: str) -> float:
    # The first run writes the bytecode for the next, as for users.
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return float(time.perf_counter_ns() - start)


def calls_per_sample(sample: Sampler) -> int:
    """Return how many calls make a sample of about 2 ms; warms the path up too."""
    sample(1)  # the first call learns about types and libraries, which takes long
    calls = 1
    while True:
        per_call = sample(calls)
        if per_call * calls >= SAMPLE_NS / 10:
            return max(1, round(SAMPLE_NS / per_call))
        calls *= 10


def counted(sample: Sampler, scope: Scope) -> dict[str, float]:
    """Return what a call asks of others, by the scope's own counters."""
    if "counts" not in scope:
        return {}
    scope["counts"]()
    sample(COUNTED)
    return {name: count / COUNTED for name, count in scope["counts"]().items()}


def measure(row: Row, scope: Scope, effort: Effort) -> Result:
    """Time both sides of `row`, interleaved, with the garbage collector off."""
    problems: dict[str, str] = {}
    samplers: dict[str, Sampler] = {}
    calls: dict[str, int] = {}
    round_ns = 0.0
    gc.collect()
    gc.disable()
    try:
        for side, code in (("ours", row.ours), ("theirs", row.theirs)):
            if missing(code, scope):
                problems[side] = NOT_INSTALLED
                continue
            try:
                samplers[side] = sampler(row.clock, code, scope)
                calls[side] = 1 if row.absolute else calls_per_sample(samplers[side])
                round_ns += samplers[side](calls[side]) * calls[side]
            except Exception as error:  # a broken path must not hide the others
                samplers.pop(side, None)
                problems[side] = f"{type(error).__name__}: {error}".splitlines()[0]
        samples: dict[str, list[float]] = {side: [] for side in samplers}
        counts = counted(samplers["ours"], scope) if "ours" in samplers else {}
        if samplers:
            fitting = int(effort.row_ns / round_ns)
            for _ in range(max(LEAST_ROUNDS, min(effort.rounds, fitting))):
                for side, sample in samplers.items():
                    samples[side].append(sample(calls[side]))
    finally:
        gc.enable()
    timings = {
        side: Timing(min(ns), statistics.median(ns), len(ns), calls[side])
        for side, ns in samples.items()
    }
    sides = problems | timings
    rounds = zip(*samples.values(), strict=True) if len(samples) == 2 else ()
    ratios = [ours / its for ours, its in rounds]
    ratio = statistics.median(ratios) if ratios else None
    return Result(row, sides["ours"], sides["theirs"], counts, ratio)
