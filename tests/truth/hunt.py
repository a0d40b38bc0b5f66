"""Look for planted bugs: ``python -m truth.hunt BUG ...``, by default for all.

Prints the first finding of each in one line of JSON, and whether its program is wrong
without the bug, too.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from .libraries import MODULES
from .planted import BUGS
from .run import Run, parsed, spare
from .worker import ran_alone

SECONDS = 60
"""For each bug."""

PLANT = "import truth.planted; truth.planted.BUGS[{!r}].plant()"


def hunt(bug: str) -> dict[str, Any]:
    """Run the fuzzer with a bug until it is found or the time is up."""
    options = parsed(
        [
            f"--seconds={SECONDS}",
            "--first",
            "--quiet",
            f"--libraries={BUGS[bug].library}",
            f"--only={','.join(ONLY)}",
            f"--before={PLANT.format(bug)}",
        ]
    )
    run = Run(options)
    spare()
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


ONLY = [name for name in MODULES if name not in ("paddle", "tf", "mx")]


def main(bugs: list[str]) -> None:
    """Look for each bug."""
    for bug in bugs or BUGS:
        print(json.dumps(hunt(bug)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
