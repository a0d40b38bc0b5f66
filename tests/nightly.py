"""Run tasks of `tests/tasks.py`, and write docs/nightly.md: results, times, commits.

    python tests/nightly.py TASK...

All are run, whichever fail. What they print as `NAME: ok`, `NAME: skipped: REASON` or
`NAME: FAILED` is counted, and what pytest counts. A task that is not run now keeps its
last row.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/nightly.md"
PART = re.compile(r".+: (ok|skipped: |FAILED)")
TESTS = re.compile(r"(\d+) (passed|failed|skipped|error)")
ROW = re.compile(r"\| ([\w-]+) \| .+")
BEGIN = """\
# The last nightly runs

Tasks that take too long for `make ci`; `make nightly NIGHTLY=asan` runs one.

| task | result | seconds | date | commit |
|---|---|---|---|---|
"""


def run(task: str) -> str:
    """Run one task, and return its row of the table."""
    start, began = monotonic(), datetime.now(UTC)
    parts: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    command = [sys.executable, "tests/tasks.py", task]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    with process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if part := PART.match(line):
                parts[part[1].rstrip(": ")] += 1
            elif re.match(r"=* ?\d+ (passed|failed)", line):
                tests.update({word: int(n) for n, word in TESTS.findall(line)})
    commit = subprocess.check_output(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, text=True
    )
    fields = (
        task,
        result(process.returncode, parts or tests),
        f"{monotonic() - start:.0f}",
        f"{began:%Y-%m-%d}",
        commit.strip(),
    )
    return f"| {' | '.join(fields)} |"


def result(status: int, counts: Counter[str]) -> str:
    """Say how a task ended, in one line."""
    said = ", ".join(f"{n} {word}" for word, n in counts.items())
    if status:
        return f"FAILED: {said}" if said else "FAILED"
    return said or "ok"


def earlier() -> dict[str, str]:
    """Read the last row of each task from the page."""
    text = PAGE.read_text() if PAGE.exists() else ""
    rows = {row[1]: row[0] for row in ROW.finditer(text)}
    return {task: row for task, row in rows.items() if task != "task"}


def main(*tasks: str) -> int:
    """Run all, and write the page after each: some take hours, and may be ended."""
    rows, failed = earlier(), False
    for task in tasks:
        rows[task] = run(task)
        failed |= "| FAILED" in rows[task]
        PAGE.write_text(BEGIN + "\n".join(rows.values()) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
