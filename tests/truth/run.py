"""Run the fuzzer: ``python -m truth.run --seconds 60 --seed 1 --libraries torch``.

The libraries are imported here once, and every worker is forked from this process, so a
worker that crashes is replaced quickly.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .games import games, reloads
from .libraries import FOUND, MODULES, load
from .program import snippet
from .worker import (
    LIBRARIES,
    Child,
    Chunk,
    Outcome,
    library,
    minimized,
    ran_each,
    start,
)

QUICK = 100
"""Runs of at most this many seconds leave out slow imports."""

SLOW = ("func.", "fake_mode", "two_tensor", "dual(", "nested.", "distributed(")
"""Parts of programs that need a slow import."""

SLICES = 5.0, 30.0
"""Seconds that a worker runs before another replaces it: minimum and maximum."""

PROGRAMS = 100
"""Programs of a worker in a run of rounds, which is the same on every machine."""


def kind_of(wrong: str) -> str:
    """Return a key that findings of the same cause share."""
    what, _, where = wrong.rpartition(" in ")
    head = (what or wrong).split("[")[0][:40]
    return f"{head} {where.partition('(')[0]}"


class Finding:
    """A failing program, minimized."""

    def __init__(self, chunk: Chunk, outcome: Outcome, shrink: bool) -> None:
        """Minimize the last program of an outcome."""
        self.chunk, self.outcome = chunk, outcome
        self.lines, self.problem = outcome.lines, outcome.wrong
        self.alone = True
        if shrink:
            lines, problem = minimized(outcome.lines, chunk.before)
            self.alone = bool(problem)
            if problem:
                self.lines, self.problem = lines, problem

    def __str__(self) -> str:
        """Return the program, and how to run it again."""
        how = f"SEED={self.chunk.seed} LIBRARIES={self.chunk.library}"
        text = snippet(self.lines, self.chunk.before)
        note = (
            ""
            if self.alone
            else f"\n# Not wrong alone: program {self.outcome.programs} of its worker, "
            f"which began with number {self.chunk.first}."
        )
        return f"WRONG: {self.problem}\n# {how}{note}\n{text}\n"


class Run:
    """A run of workers for a given time."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Import the libraries."""
        self.options = options
        self.end = 0.0
        self.slice = min(max(SLICES[0], options.seconds / 20), SLICES[1])
        if options.rounds:
            options.seconds = self.slice = math.inf
            options.programs = options.programs or PROGRAMS
        names = set((options.only or ",".join(MODULES)).split(","))
        names -= set(options.without.split(","))
        self.modules = load(names, slow=not options.rounds and options.seconds > QUICK)
        wanted = options.libraries.split(",") if options.libraries else [*LIBRARIES]
        self.libraries = [
            name
            for name in wanted
            if all(need in self.modules for need in library(name).needs)
        ]
        if not self.libraries:
            raise SystemExit(f"none of these is installed: {', '.join(wanted)}")
        self.programs: Counter[str] = Counter()
        self.looks: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.findings: list[Finding] = []

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks without end; the same ones for the same seed."""
        seed = self.options.seed
        rounds = self.options.rounds
        for number in range(rounds) if rounds else itertools.count():
            r = random.Random(f"{seed}/{number}")
            for name in self.libraries:
                yield Chunk(
                    name,
                    f"{seed}/{name}/{number}",
                    before=tuple(self.options.before) or before(r, name),
                    hypothesis=number % 4 == 3,
                    count=self.options.programs or Chunk.count,
                )

    def run(self) -> None:
        """Run all rounds, or until the time is up, which starts here."""
        self.end = time.time() + self.options.seconds
        chunks = self.chunks()
        running: list[tuple[Child, Chunk]] = []
        while True:
            left = self.end - time.time()
            while (
                left > 1
                and len(running) < self.options.jobs
                and not self.is_enough()
                and (chunk := next(chunks, None)) is not None
            ):
                chunk.until = time.time() + min(self.slice, left - 1)
                running.append((start(chunk), chunk))
            if not running:
                break
            time.sleep(0.01)
            still = []
            for child, chunk in running:
                outcome = child.poll()
                if outcome is None:
                    still.append((child, chunk))
                elif (again := self.note(chunk, outcome)) is not None:
                    still.append((start(again), again))
            running = still
            if self.is_enough():
                for child, _ in running:
                    child.stop()
                break

    def is_enough(self) -> bool:
        """Whether the findings so far suffice."""
        return bool(self.findings) and self.options.first

    def note(self, chunk: Chunk, outcome: Outcome) -> Chunk | None:
        """Count, examine a failure, and return the rest of the chunk."""
        self.programs[chunk.library] += outcome.programs
        self.looks[chunk.library] += outcome.looks
        self.refused[chunk.library] += outcome.refused
        self.known.update(outcome.known)
        if outcome.wrong:
            self.look_closer(chunk, outcome)
        left = chunk.until - time.time()
        rest = Chunk(**vars(chunk))
        rest.first += max(outcome.programs, 1)
        rest.count -= max(outcome.programs, 1)
        if left < 1 or rest.count < 1 or chunk.hypothesis or self.is_enough():
            return None
        return rest

    def look_closer(self, chunk: Chunk, outcome: Outcome) -> None:
        """Minimize and keep the first finding of each kind."""
        kind = f"{chunk.library}: {kind_of(outcome.wrong)}"
        self.kinds[kind] += 1
        if self.kinds[kind] == 1 and not self.is_enough():
            finding = Finding(chunk, outcome, not self.options.no_shrink)
            self.findings.append(finding)
            if not self.options.quiet:
                print(finding, flush=True)

    def report(self) -> None:
        """Print how much ran."""
        total = sum(self.programs.values())
        each = ", ".join(f"{name} {n}" for name, n in self.programs.items())
        looks, refused = sum(self.looks.values()), sum(self.refused.values())
        print(f"seed {self.options.seed}: {total} programs ({each}),")
        print(f"{looks} looks, {refused} of them refused; {versions()}")
        each = ", ".join(f"{name} {n}" for name, n in self.known.most_common())
        print(f"known faults passed over: {each or 'none'}")
        for kind, number in self.kinds.most_common():
            print(f"{number:6} {kind}")


def before(r: random.Random, name: str) -> tuple[str, ...]:
    """Draw the lines that a worker runs once, before its programs."""
    lines, needs = [], library(name).needs
    if r.randrange(4) == 3:
        lines.append("dlx.publish(np.ndarray)")
    if r.randrange(4) == 3 and "jax" in FOUND:
        lines.append("jax.config.update('jax_enable_x64', False)")
    if r.randrange(4) == 3:
        lines.append(f"first_look({r.choice(games(needs))!r})")
    names = {"numpy", *(MODULES[need] for need in needs)}
    if r.randrange(8) == 7 and (again := reloads(names)):
        lines.append(f"reloaded({r.choice(again)!r})")
    return tuple(lines)


def versions() -> str:
    """Return the names and versions of the libraries."""
    names = {"pa": "pyarrow", "np": "numpy", "tvm_ffi": "apache-tvm-ffi"}
    names |= {"tf": "tensorflow-cpu", "mx": "mlx", "paddle": "paddlepaddle"}
    names |= {"pd": "pandas", "masked": "astropy"}
    names |= {"xp": "array-api-strict", "ml_dtypes": "ml_dtypes"}
    found = []
    for module in MODULES:
        if module != "jnp":
            try:
                name = names.get(module, module)
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                continue
    return ", ".join(found)


def lines_of(path: Path) -> list[str]:
    """Read a program from a file."""
    return [
        line
        for line in path.read_text().splitlines()
        if line and not line.startswith("#")
    ]


def spare() -> None:
    """Spare each worker the collection of the libraries' own objects."""
    gc.collect()
    gc.freeze()


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; defaults come from the environment."""
    known: Any = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=float(known("FUZZ_SECONDS", 60)))
    rounds = int(known("FUZZ_ROUNDS", 0))
    add("--rounds", type=int, default=rounds, help="of all libraries, without a limit")
    add("--programs", type=int, default=0, help="of a worker, before another begins")
    add("--seed", default=known("SEED", "1"))
    add("--libraries", default=known("LIBRARIES", ""))
    add("--only", default="", help="what to import, as programs call it")
    add("--without", default="", help="what not to import, as programs call it")
    add("--jobs", type=int, default=os.cpu_count() or 1)
    add("--first", action="store_true", help="stop at the first finding")
    add("--quiet", action="store_true", help="print no findings")
    add("--no-shrink", action="store_true", help="print programs as they were drawn")
    add("--before", action="append", default=[], help="a line that workers run first")
    add("--program", type=Path, action="append", help="files of programs to run alone")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; return 1 if anything was wrong."""
    warnings.simplefilter("ignore")
    options = parsed(arguments)
    if options.program:
        texts = "".join(path.read_text() for path in options.program)
        load(slow=any(name in texts for name in SLOW))
        spare()
        ran = ran_each([lines_of(path) for path in options.program], options.jobs)
        found = {
            str(path): {"wrong": o.wrong, "known": "".join(o.known)}
            for path, o in zip(options.program, ran, strict=True)
        }
        print("results: " + json.dumps(found))
        return int(any(o.wrong for o in ran))
    run = Run(options)
    spare()
    run.run()
    run.report()
    return int(bool(run.findings))


if __name__ == "__main__":
    sys.exit(main())
