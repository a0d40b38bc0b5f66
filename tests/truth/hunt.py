"""Look for planted bugs: ``python -m truth.hunt BUG ...``, by default for all.

Prints the first finding of each in one line of JSON, and whether its program is wrong
without the bug, too.
"""

from __future__ import annotations

import json
import sys
from itertools import chain
from multiprocessing import get_context
from typing import Any

from .libraries import FOUND, load
from .planted import BUGS
from .run import Run, parsed, spare
from .worker import library, ran_alone

SECONDS = 300
"""At most, for each bug; most take five."""

PLANT = "import truth.planted; truth.planted.BUGS[{!r}].plant()"


def hunt(bug: str) -> dict[str, Any]:
    """Run the fuzzer with a bug until it is found or the time is up."""
    only = {"np", "ml_dtypes", *FEW[BUGS[bug].library]}
    for name in FOUND.keys() - only:
        del FOUND[name]
    options = parsed(
        [
            f"--seconds={SECONDS}",
            # Few enough that a worker on an idle machine ends by them, not by time.
            "--programs=2000",
            "--first",
            "--quiet",
            f"--libraries={BUGS[bug].library}",
            f"--only={','.join(only)}",
            "--jobs=1",
            f"--before={PLANT.format(bug)}",
        ]
    )
    run = Run(options)
    run.run()
    if not run.findings:
        return {"bug": bug, "wrong": "", "lines": [], "without": ""}
    [finding] = run.findings
    without = ran_alone(finding.lines, skips=True, whole=True).wrong
    return {
        "bug": bug,
        "wrong": finding.problem,
        "lines": finding.lines,
        "without": without,
    }


FEW = {
    "numpy": ("xp",),
    "torch": ("torch",),
    "jax": ("jax", "jnp"),
    "pandas": ("pa", "pd"),
    "wrapped": ("pa",),
}
"""The libraries, besides NumPy, that the bugs of each library's programs need: with
fewer of them, a program is sooner one that shows the bug."""


def found_here() -> list[str]:
    """Return the bugs that the installed libraries can show."""
    return [
        name
        for name, bug in BUGS.items()
        if FOUND.keys() >= {*library(bug.library).needs}
    ]


def main(bugs: list[str]) -> None:
    """Look for each bug."""
    # The libraries are imported once, before the processes part.
    load({"np", "ml_dtypes", *chain(*FEW.values())}, slow=False)
    spare()
    with get_context("fork").Pool(maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(hunt, bugs or found_here(), chunksize=1):
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
