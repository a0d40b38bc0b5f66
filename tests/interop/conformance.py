"""Check every library with the suite, and write what each does to `conformance.json`.

    PYTHONPATH=tests python -m interop.conformance

It also writes a table of `docs/interop.md`. The site has a page of all, "Conformance".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from dlx_check import CannotCheck, Report, Result, run
from dlx_check.conformance.structs import DTYPES
from dlx_check.conformance.suite import CHECKS
from dlx_check.conformance.suite.row import EFFECTS
from dlx_check.conformance.targets import ABSENT, TARGETS

from .report import DOCUMENT, table

RESULTS = Path(__file__).with_name("conformance.json")
TABLE = re.compile(r"(?<=<!-- begin conformance -->\n).*?(?=<!-- end -->)", re.DOTALL)
Found = dict[str, Any]
"""What the suite has found, as `conformance.json` has it."""
_ASIDE = re.compile(r" \((obs|torch)\b[^)]*\)")
"""What a requirement says of other libraries."""
ROLES = tuple(dict.fromkeys(check.role for check in CHECKS))
ON_NUMPY = ("array_api_strict", "awkward")
"""Libraries that import by NumPy: what they do is of its version, too."""
HEAD = """\
# Conformance

What libraries do today, by `python -m dlx check LIBRARY`, on the CPU.

Each role has the number of checks that the library meets, or where it may choose, and
of those that it does not meet. What cannot be tested is not counted: tensors that a
library has not, or a source that it does not mean to follow. "Malformed" is what no
producer may send; nobody has to bear it, so what happens then is no deviation.
"""
LEGEND = """\
A deviation is listed by its effect, the worst first: what was seen, then the
requirement with its source. Those from a SHOULD follow. `python -m dlx check --explain
NAME` says what a check does, and `python -m dlx check LIBRARY --repros DIR` writes a
program of the library, NumPy and ctypes for each that has one.
"""


def reports(names: Iterable[str]) -> dict[str, Report]:
    """Check these libraries, two at a time; leave out what is not installed."""

    def report(name: str) -> Report | None:
        try:
            return run(name)
        except CannotCheck:
            return None

    chosen = [*names]
    with ThreadPoolExecutor(2) as pool:
        found = zip(chosen, pool.map(report, chosen), strict=True)
        return {name: each for name, each in found if each is not None}


def failed(report: Report) -> list[Result]:
    """Return what a library does not meet, the worst first."""
    found = [result for result in report.results if result.failed]
    return sorted(found, key=_rank)


def _rank(result: Result) -> tuple[object, ...]:
    return (
        not result.fails_run,
        EFFECTS.index(result.effect),
        result.statement,
        result.text,
    )


def version_of(report: Report) -> str:
    """Return the version of a library, and of NumPy if that decides what it does."""
    header = report.header
    on = f" on NumPy {header.numpy}" if header.target in ON_NUMPY else ""
    return f"{header.version}{on}"


def row(report: Report) -> list[str]:
    """Return the row of the table."""
    cells = [f"[{report.header.target}](#{_anchor(report)})", version_of(report)]
    for role in ROLES:
        of_role = [r for r in report.results if r.role == role]
        met = sum(
            r.result in ("meets", "fact") and r.stimulus != "malformed" for r in of_role
        )
        wrong = sum(r.failed for r in of_role)
        cells.append(f"{met}, not {wrong}" if wrong else str(met or "none"))
    malformed = [r for r in report.results if r.stimulus == "malformed"]
    ends = sum(r.result in ("crashes", "hangs") for r in malformed)
    cells.append(f"ends the process: {ends}" if ends else "")
    return cells


def _anchor(report: Report) -> str:
    return report.header.target.lower().replace(".", "")


def section(report: Report) -> list[str]:
    """Return what is said of one library."""
    lines = []
    found = failed(report)
    for grave, title in ((True, "MUST, or wrong results"), (False, "SHOULD")):
        of_level = [result for result in found if result.fails_run is grave]
        if of_level:
            lines += [f"{title}:", "", *_points(of_level), ""]
    facts = [r.text for r in report.results if r.result == "fact"]
    if facts:
        lines += [f"Free to choose: {'; '.join(_facts(facts))}.", ""]
    if not found:
        lines[:0] = ["No deviation was found.", ""]
    return lines


def _points(found: list[Result]) -> Iterator[str]:
    """Write deviations; those with the same text and requirement are one point."""
    for (effect, statement, text), same in groupby(
        found, lambda r: (r.effect, r.statement, r.text)
    ):
        results = [*same]
        first = results[0]
        said = text.rstrip(".") if len(text) <= 120 else _first_words(text, 115)
        names = ", ".join(f"`{result.check}`" for result in results)
        source = f"derived from {first.source}" if first.derived else first.source
        statement = _ASIDE.sub("", statement).rstrip(".")
        yield f"- {effect}: {said}. {statement} ({source}; {names})."


def _first_words(text: str, size: int) -> str:
    """Return the words that `size` characters hold, and two dots for a third."""
    return f"{text[:size].rpartition(' ')[0]} .."


def _facts(facts: list[str]) -> Iterator[str]:
    """Put dtypes together: imports no A, B."""

    def without_dtype(text: str) -> str:
        return " ".join("DTYPE" if word in DTYPES else word for word in text.split())

    for text, same in groupby(sorted(set(facts), key=without_dtype), without_dtype):
        dtypes = [word for fact in same for word in fact.split() if word in DTYPES]
        yield text.replace("DTYPE", ", ".join(sorted(dtypes)))


def of_library(report: Report) -> Found:
    """Return what is written of a library."""
    return {"row": row(report), "said": section(report)}


def found(reports: dict[str, Report]) -> Found:
    """Return what is written of all."""
    header = next(iter(reports.values())).header
    return {
        "run with": (
            f"suite {header.suite} (DLPack 1.3, array API 2025.12), {header.checks} "
            f"checks; Python {header.python}, NumPy {header.numpy}, {header.platform}"
        ),
        "libraries": {name: of_library(report) for name, report in reports.items()},
    }


def load() -> Found:
    """Read the results that are committed."""
    results: Found = json.loads(RESULTS.read_text())
    return results


def page(found: Found) -> str:
    """Return the page of the site."""
    libraries = found["libraries"]
    lines = [*HEAD.splitlines(), "", "Not checked:", ""]
    lines += [f"- {name}: {reason}" for name, reason in sorted(ABSENT.items())]
    columns = ["", "version", *ROLES, "malformed"]
    rows = [columns, *(each["row"] for each in libraries.values())]
    lines += ["", *table(rows), *LEGEND.splitlines(), ""]
    for name, each in libraries.items():
        lines += [f"## {name}", "", *each["said"]]
    return "\n".join([*lines, "## Run with", "", found["run with"], ""])


def short(found: Found) -> str:
    """Return the table of `docs/interop.md`: what is met, and what is not."""
    rows = [["library", "version", "met", "not met"]]
    for name, each in found["libraries"].items():
        _, version, *roles, _ = each["row"]
        met = sum(int(cell.split(",")[0]) for cell in roles if cell != "none")
        wrong = sum(int(cell.split("not ")[1]) for cell in roles if "not " in cell)
        rows.append([name, version, str(met), str(wrong)])
    return "\n".join(table(rows)[:-1]) + "\n"


if __name__ == "__main__":
    names = [target.name for target in TARGETS]
    checked = reports(names)
    if missing := set(names) - set(checked):
        raise SystemExit(f"not installed: {', '.join(sorted(missing))}")
    made = found(checked)
    RESULTS.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    DOCUMENT.write_text(TABLE.sub(lambda _: short(made), DOCUMENT.read_text()))
