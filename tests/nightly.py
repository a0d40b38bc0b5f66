"""Run targets of the Makefile, and write docs/nightly.md: results, times, versions.

    python tests/nightly.py TARGET...

All are run, whichever fail. What they print as `NAME: ok`, `NAME: skipped: REASON` or
`NAME: FAILED` is listed.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

REPOSITORY = Path(__file__).parents[1]
RESULT = re.compile(r".+: (ok|skipped: |FAILED)")


def run(target: str) -> tuple[str, list[str]]:
    """Run one target, and return its row of the table and the results that it said."""
    start = monotonic()
    said = []
    command = ["make", "--no-print-directory", target]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    with process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if RESULT.match(line):
                said.append(line.strip())
    result = "FAILED" if process.returncode else "ok"
    return f"| `make {target}` | {result} | {monotonic() - start:.0f} |", said


def version(*command: str) -> str:
    """Return the first line that a program prints."""
    return subprocess.check_output(command, text=True).splitlines()[0]


def write(began: datetime, ran: dict[str, tuple[str, list[str]]]) -> None:
    """Write the page of the targets that have run."""
    commit = version("git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD")
    lines = [
        "# The last nightly run",
        "",
        "Written by `make nightly`, which runs what takes too long for `make ci`.",
        "",
        f"{began:%Y-%m-%d %H:%M} UTC, commit {commit}.",
        f"{version('rustc', '--version')}, CPython {platform.python_version()},",
        f"{version('gcc', '--version')}, {platform.system()} {platform.machine()}.",
        "",
        "| target | result | seconds |",
        "|---|---|---|",
        *(row for row, _ in ran.values()),
    ]
    for target, (_, said) in ran.items():
        lines += ["", f"## make {target}", "", *(f"- {line}" for line in said)]
    (REPOSITORY / "docs/nightly.md").write_text("\n".join(lines) + "\n")


def main(*targets: str) -> int:
    """Run all, and write the page after each: some take hours, and may be ended."""
    began = datetime.now(UTC)
    ran = {}
    for target in targets:
        ran[target] = run(target)
        write(began, ran)
    return int(any("| FAILED |" in row for row, _ in ran.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
