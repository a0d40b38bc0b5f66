"""Many random programs on streams (`stream_programs`), from a seed.

```sh
PYTHONPATH=tests .venv/bin/python -m support.random_programs --count 1000000 --seed 1
```

This takes about 55 minutes on one core, and prints how often each path was taken: a
"launch without a call" did not call the driver. A program that fails is made shorter
and printed, with its number: `--first NUMBER --count 1` runs it alone. dlx keeps its
pools and lists from one program to the next, so that a failure may need the ones
before: those since the last multiple of 5000, where a new process begins.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from support.cuda_producers import (
    DLPackArray,
    Framework,
    InterfaceArray,
    TableArray,
    framework,
)
from support.program_state import Step
from support.simulated_driver import library_path, simulation
from support.stream_programs import STEPS, Program

NUMBERS = 24
"""How many numbers there are to choose operands."""


RESETS = 50
"""Number of programs from one reset of the device to the next."""


PART = 5_000
"""Number of programs of a process: the driver remembers all events, and gets slow."""


@cache
def libraries() -> tuple[list[Framework], Framework]:
    """Return the libraries of all programs, and the consumer."""
    kinds = {"one": TableArray, "two": InterfaceArray, "three": DLPackArray}
    made = [framework(kind, name) for name, kind in kinds.items()]
    consumer = framework(DLPackArray, "consumer")
    # Each program looks for its cycles: among little.
    gc.collect()
    gc.freeze()
    return made, consumer


def run(steps: Sequence[Step], **switched_off: Any) -> Program:
    """Run a program on a machine where nothing has happened."""
    sim = simulation()
    sim.start()
    producers, consumer = libraries()
    program = Program(sim, producers, consumer, **switched_off)
    program.run(steps)
    return program


COUNTS: Counter[str] = Counter()
"""How often the programs of this process took each path."""


def fault(steps: Sequence[Step], **switched_off: Any) -> str:
    """Run a program; return what went wrong, or nothing."""
    try:
        program = run(steps, **switched_off)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    COUNTS.update(program.counts)
    sim = program.sim
    faults = [f"race: {race}" for race in sim.races]
    faults += [f"violation: {violation}" for violation in sim.violations]
    return faults[0] if faults else ""


def shorter(steps: list[Step], **switched_off: Any) -> list[Step]:
    """Return steps of which none can be left out, that fail in the same way."""
    kind, size = fault(steps, **switched_off)[:12], len(steps)
    while size := size // 2:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if fault(fewer, **switched_off)[:12] == kind:
                steps = fewer
            else:
                start += size
    return steps


def program(seed: str, number: int) -> list[Step]:
    """Return the steps of a program."""
    source = random.Random(f"{seed} {number}")
    count = source.randint(4, 60)
    numbers = iter(source.choices(range(NUMBERS), k=3 * count))
    names = source.choices(STEPS, k=count)
    return list(zip(names, numbers, numbers, numbers, strict=True))


def failing(seed: str, numbers: Sequence[int]) -> Iterator[tuple[int, str, list[Step]]]:
    """Run programs; yield those that fail, made shorter, with what went wrong."""
    for number in numbers:
        steps = program(seed, number)
        if number % RESETS == RESETS - 1:
            simulation().start()
            simulation().reset_device(0)
        if found := fault(steps):
            fewer = shorter(steps)
            yield number, fault(fewer) or f"not again: {found}", fewer


def parts(first: int, count: int) -> Iterator[range]:
    """Split numbers at multiples of `PART`."""
    while count > 0:
        here = min(PART - first % PART, count)
        yield range(first, first + here)
        first, count = first + here, count - here


def by_processes(seed: str, numbers: Sequence[range]) -> int:
    """Run each part in a process of its own; return how many have a failure."""
    command = [sys.executable, "-m", __spec__.name, f"--seed={seed}"]
    failures = 0
    for part in numbers:
        number = [f"--first={part.start}", f"--count={len(part)}"]
        failures += subprocess.run([*command, *number]).returncode != 0
    return failures


def main() -> int:
    """Run programs from the command line; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    all_parts = [*parts(options.first, options.count)]
    if len(all_parts) > 1:
        return int(by_processes(options.seed, all_parts) != 0)
    os.environ["DLX_LIBCUDA"] = str(library_path())
    begin, failures = time.monotonic(), 0
    numbers = range(options.first, options.first + options.count)
    for number, found, steps in failing(options.seed, numbers):
        failures += 1
        sys.stdout.write(f"program {number}: {found}\n    {steps}\n")
        sys.stdout.flush()
    seconds = time.monotonic() - begin
    sys.stdout.write(
        f"{options.count} programs from {options.first} with seed {options.seed} in "
        f"{seconds:.0f} s: {failures} failed\n"
        f"    {', '.join(f'{path}: {count}' for path, count in COUNTS.most_common())}\n"
    )
    sys.stdout.flush()
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
