"""Run targets of the Makefile, and write docs/nightly.md: results, times, versions.

    python tests/nightly.py TARGET...

All are run, whichever fail. What they print as `NAME: ok`, `NAME: skipped: REASON` or
`NAME: FAILED` is listed, and what pytest counts. A target that is not run now keeps its
last row.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/nightly.md"
RESULT = re.compile(r".+: (ok|skipped: |FAILED)|=* ?\d+ (passed|failed)")
ROW = re.compile(r"\| `make (\S+)` \|.+")


class Ran(NamedTuple):
    """A run of a target: its row of the table, and the results that it said."""

    row: str
    said: list[str]


def run(target: str) -> Ran:
    """Run one target."""
    start, began = monotonic(), datetime.now(UTC)
    said = []
    command = ["make", "--no-print-directory", target]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    with process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if RESULT.match(line):
                said.append(line.strip("=\n "))
    result = "FAILED" if process.returncode else "ok"
    commit = version("git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD")
    fields = (
        f"`make {target}`",
        result,
        f"{monotonic() - start:.0f}",
        f"{began:%Y-%m-%d %H:%M} UTC",
        commit,
    )
    return Ran(f"| {' | '.join(fields)} |", said)


def version(*command: str) -> str:
    """Return the first line that a program prints."""
    return subprocess.check_output(command, text=True).splitlines()[0]


def earlier() -> dict[str, Ran]:
    """Read the last run of each target from the page."""
    if not PAGE.exists():
        return {}
    table, *sections = PAGE.read_text().split("\n## make ")
    said = {}
    for section in sections:
        target, *lines = section.splitlines()
        said[target] = [line.removeprefix("- ") for line in lines if line]
    return {row[1]: Ran(row[0], said.get(row[1], [])) for row in ROW.finditer(table)}


def write(ran: dict[str, Ran]) -> None:
    """Write the page of the targets that have run."""
    lines = [
        "# The last nightly runs",
        "",
        "Written by `make nightly`, which runs what takes too long for `make ci`.",
        "`make nightly NIGHTLY=asan` runs one target, and leaves the others' rows.",
        "",
        f"{version('rustc', '--version')}, CPython {platform.python_version()},",
        f"{version('gcc', '--version')}, {platform.system()} {platform.machine()}.",
        "",
        "| target | result | seconds | when | commit |",
        "|---|---|---|---|---|",
        *(each.row for each in ran.values()),
    ]
    for target, each in ran.items():
        if each.said:
            lines += ["", f"## make {target}", "", *(f"- {line}" for line in each.said)]
    PAGE.write_text("\n".join(lines) + "\n")


def main(*targets: str) -> int:
    """Run all, and write the page after each: some take hours, and may be ended."""
    ran, failed = earlier(), False
    for target in targets:
        ran[target] = run(target)
        failed |= "| FAILED |" in ran[target].row
        write(ran)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
