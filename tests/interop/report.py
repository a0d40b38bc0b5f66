"""Run every pair, and write `pairs.json`, and a table and picture of `docs/interop.md`.

    PYTHONPATH=tests python -m interop.report

The site has a page of all, "Pairs of libraries".
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections import Counter
from datetime import date
from pathlib import Path
from textwrap import dedent
from typing import Any

from .cells import DLX, LIFETIMES, RATIO
from .consumers import CONSUMERS
from .deviations import DEVIATIONS
from .matrix import Pair
from .picture import PICTURE, svg
from .producers import PRODUCERS
from .run import results
from .ways import (
    CHANGED,
    CONVERT,
    COPIED,
    ITSELF,
    MISCOUNTED,
    MISREAD,
    NOT_SENT,
    SHARED,
    UNPROTECTED,
    WRONG,
)

RESULTS = Path(__file__).with_name("pairs.json")
DOCUMENT = Path(__file__).parents[2] / "docs/interop.md"
TABLE = re.compile(r"(?<=<!-- begin pairs -->\n).*?(?=<!-- end -->)", re.DOTALL)
Rows = list[list[str]]
Found = dict[str, Any]
"""The results of a run, as `pairs.json` has them."""
HEAD = """\
# Pairs of libraries

Tensors of every library are sent to every other in three ways: by `dlx.convert(x, to)`,
by the same with `copy=False`, and by the consumer's own import of a `dlx.Tensor`. Each
is compared with the expected outcome. Either side may die first, and on another
thread; the consumer's result, added to itself by the consumer, gives the right numbers;
and that changes nothing that was sent. Each pair runs in its own process; none crashes.

Rows are producers, columns consumers. `shared/copied/refused` counts the tensors sent,
in every dtype of the row and, for float32, in every layout: the same memory arrived,
the same elements elsewhere, or an error. `!` counts those that the consumer gets wrong.
`x` is the time relative to the consumer's own import of the same object, if it has one,
both in one process: an order of magnitude, on the machine that the end of this page
names.
"""
BY_CONVERT = """\
## By `dlx.convert`

The first column is `dlx.from_dlpack`. With `copy=False`, what is copied here is refused
with a `dlx.CopyRefused`. An object that already has the consumer's type is returned.
"""
BY_ITSELF = """\
## By the consumer's own import

`consumer.from_dlpack(dlx.from_dlpack(x))`. A consumer that is missing above has no type
to convert to.
"""
NOT_THERE = """\
ndonnx's arrays refuse. dask's have `__array__` alone, which computes a copy each time.
tinygrad's tensors have none either: the tests send their `data()`, and use its device
PYTHON, because the CPU device needs clang. Numba's host arrays are NumPy's. CuPy is
left out because it has no arrays on the CPU, apache-tvm because its tensors are
tvm-ffi's.
"""
RULES = """\
## What each consumer does

A tensor that no rule mentions is shared. Outcomes: `unprotected` means that the
consumer would write to read-only memory; `misread` that its result has other elements
or another dtype; `not sent` that it would read outside the memory or end the process.
Conditions: `dtype` is any dtype not listed, `protected` read-only and not empty, `gaps`
strided and not only permuted, `offset` not at a multiple of 64 bytes, `padded` one byte
for each smaller element, `unversioned` from a producer that cannot say whether it is
read-only. Except for NumPy, `dlx.convert` also copies what is not aligned to its
elements.
"""
REFUSED = "refused"


def kind(outcome: str) -> str:
    """Return the kind of outcome that the matrix counts."""
    if outcome in (SHARED, COPIED):
        return outcome
    if outcome.startswith((WRONG, UNPROTECTED, MISREAD, MISCOUNTED, CHANGED, NOT_SENT)):
        return "!"
    return REFUSED


def entry(pair: Pair, way: str) -> str:
    """Format one field of a matrix."""
    cells = [cell for cell in pair.cells if cell.way == way]
    sent = [cell for cell in cells if cell.case not in (*LIFETIMES, RATIO)]
    counts = Counter(kind(cell.outcome) for cell in sent)
    text = "/".join(str(counts[name]) for name in (SHARED, COPIED, REFUSED))
    if counts["!"]:
        text += f" {counts['!']}!"
    times = [cell.outcome for cell in cells if cell.case == RATIO]
    return f"{text} x{times[0]}" if any(times) else text


def table(rows: Rows) -> list[str]:
    """Format rows; the first is the head."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [head, "|" + " --- |" * len(rows[0]), *body, ""]


def matrix(pairs: list[Pair], way: str) -> Rows:
    """Return the table of producers and of the consumers that a way leads to."""
    found = {
        (pair.producer, pair.consumer): entry(pair, cell.way)
        for pair in pairs
        for cell in pair.cells
        if cell.way == way or (way == CONVERT and cell.way == DLX)
    }
    wanted = {consumer for _, consumer in found}
    columns = [
        name
        for name in (DLX, *(consumer.name for consumer in CONSUMERS))
        if name in wanted
    ]
    rows = [["", *columns]]
    for producer in PRODUCERS:
        fields = [found.get((producer.name, column), "") for column in columns]
        if any(fields):
            rows.append([producer.name, *fields])
    return rows


def rules() -> list[str]:
    """Format the rules that the tests assert of each consumer."""
    rows = [["consumer", "dtypes that it takes", CONVERT, "its own import"]]
    for each in CONSUMERS:
        ways = [
            "; ".join(f"{trait}: {outcome}" for trait, outcome in rules)
            for rules in (each.converts, each.rules)
        ]
        rows.append([each.name, each.dtypes, *ways])
    return table(rows)


def deviations() -> list[str]:
    """Format the deviations found in other libraries."""
    lines = []
    for number, each in enumerate(DEVIATIONS, 1):
        ends = f" Ends with {each.ends}." if each.ends else ""
        lines += [
            f"{number}. **{each.library}**: {each.what}{ends}",
            "",
            "    ```python",
        ]
        lines += [f"    {line}" for line in dedent(each.code).strip().splitlines()]
        lines += ["    ```", ""]
    return lines


def machine() -> str:
    """Say where and when, and how busy the machine was."""
    return (
        f"CPython {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores, {date.today()}, load average "
        f"{os.getloadavg()[2]:.1f}"
    )


def found(
    pairs: list[Pair], versions: dict[str, str], missing: dict[str, str]
) -> Found:
    """Return what a run has found."""
    return {
        "machine": machine(),
        "versions": versions,
        "missing": missing,
        "by_convert": matrix(pairs, CONVERT),
        "by_itself": matrix(pairs, ITSELF),
    }


def load() -> Found:
    """Read the results that are committed."""
    results: Found = json.loads(RESULTS.read_text())
    return results


def page(found: Found) -> str:
    """Return the page of the site."""
    lines = [
        *HEAD.splitlines(),
        "",
        *BY_CONVERT.splitlines(),
        "",
        *table(found["by_convert"]),
        *NOT_THERE.splitlines(),
        "",
        *BY_ITSELF.splitlines(),
        "",
        *table(found["by_itself"]),
        *RULES.splitlines(),
        "",
        *rules(),
        "## Deviations",
        "",
        "What `dlx check` does not find. `tests/tasks.py interop` runs each, and fails",
        "if the outcome is another.",
        "",
        *deviations(),
        "## Versions",
        "",
        ", ".join(f"{name} {number}" for name, number in found["versions"].items()),
        "",
        found["machine"],
        "",
    ]
    if found["missing"]:
        lines += ["Not installed, and so not tried:", ""]
        lines += [f"- {name}: {why}" for name, why in found["missing"].items()]
        lines.append("")
    return "\n".join(lines)


def short(found: Found) -> str:
    """Return the table of `docs/interop.md`: what goes to dlx, and what comes back."""
    (_, *consumers), of_dlx, *others = found["by_convert"]
    given = dict(zip(consumers, of_dlx[1:], strict=True))
    rows = [["library", "version", "to dlx", "from dlx"]]
    for name, taken, *_ in others:
        if name in found["versions"]:
            ends = (counts.partition(" ")[0] for counts in (taken, given.get(name, "")))
            rows.append([name, found["versions"][name], *ends])
    return "\n".join(table(rows)[:-1]) + "\n"


PLACED = r"(\d+)/(\d+)/(\d+)(?: (\d+)!)?"


def outcomes(found: Found) -> list[Rows]:
    """Return what must not change: all except times and versions.

    JAX and TensorFlow share memory that is aligned to 64 bytes, which depends on where
    a library puts it. So for these two only the sum of shared, copied and wrong tensors
    is compared here. Each cell has its own expectation.
    """

    def both(cell: re.Match[str]) -> str:
        return f"{int(cell[1]) + int(cell[2]) + int(cell[4] or 0)}/{cell[3]}"

    def lasting(consumer: str, cell: str) -> str:
        counts = re.sub(r" x[\d.]+", "", cell)
        if consumer in ("jax", "tensorflow-cpu"):
            return re.sub(PLACED, both, counts)
        return counts

    def of(head: list[str], *rows: list[str]) -> Rows:
        return [head, *([*map(lasting, head, row)] for row in rows)]

    return [of(*found[way]) for way in ("by_convert", "by_itself")]


if __name__ == "__main__":
    made = found(*results())
    RESULTS.write_text(json.dumps(made, indent=1) + "\n")
    PICTURE.write_text(svg(made["by_convert"]))
    DOCUMENT.write_text(TABLE.sub(short(made), DOCUMENT.read_text()))
