"""Markdown for the summary of a CI job.

Everything that is the target's stands in code spans and fenced blocks, which nothing
inside can end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dlx_check.conformance.causes import by_effect, causes
from dlx_check.conformance.reports.order import (
    NONE_KNOWN,
    Known,
    accepted,
    columns,
    level,
    likewise,
    roles,
)
from dlx_check.conformance.result import Result
from dlx_check.conformance.results import Header, Report

__all__ = ["LIMIT", "markdown"]

LIMIT = 1_000_000
"""Bytes; GitHub refuses a summary of more than 1 MiB."""
_SPECIAL = r"[\\`*_\[\]<>|~@&$]|:(?=/)|(?<=www)\."
"""What begins markup or a link inside of a line."""


def markdown(reports: Iterable[Report], known: Known = NONE_KNOWN) -> Iterator[str]:
    """Give the text in parts, each with its line end."""
    left = LIMIT
    for report in reports:
        mine = accepted(report, known)
        parts = [
            _head(report),
            *(
                _found(each, report, number, mine)
                for number, cause in enumerate(causes(report.results), 1)
                for each in cause.results
            ),
        ]
        for part in parts:
            left -= len(part.encode(errors="replace"))
            if left < 0:
                yield "\nThe rest is in the JSON reports: a summary has a limit.\n"
                return
            yield part


def _head(report: Report) -> str:
    head, used = report.header, columns(report)
    lines = [
        f"## {_code(f'{head.target} {head.version}')} and DLPack 1.3",
        "",
        f"{_where(head)}; {head.checks} checks in {report.seconds:.1f} s",
        "",
        "| role | " + " | ".join(used) + " |",
        "|---|" + "---:|" * len(used),
    ]
    for role in roles(report):
        numbers = (str(report.counts[role].get(each, "-")) for each in used)
        lines.append(f"| {_prose(role)} | {' | '.join(numbers)} |")
    if not by_effect(report.results):
        lines += ["", "Everything that could be tested is as required."]
    return "\n".join((*lines, ""))


def _where(head: Header) -> str:
    parts = (
        f"Suite {head.suite}",
        f"dlx {head.dlx}",
        f"Python {head.python}",
        f"NumPy {head.numpy}",
        head.platform,
    )
    return ", ".join(map(_prose, parts))


def _found(result: Result, report: Report, cause: int, known: frozenset[str]) -> str:
    words = [level(result), f"cause {cause}", f"effect on a user: {result.effect}"]
    words += [likewise(report)] * result.like_numpy
    words += ["known"] * (result.check in known)
    words += ["unconfirmed"] * (result.confirmed == "unconfirmed")
    derived = ", derived" if result.derived else ""
    names = " ".join(result.requirements)
    required = f"{_prose(result.statement)} ({_prose(f'{result.source}; {names}')}"
    lines = [
        "",
        f"### {_code(result.check)}: {_prose(', '.join(words))}",
        "",
        f"- Required{derived}: {required})",
        f"- Expected: {_prose(result.expected)}",
        f"- Seen: {_prose(result.result)}, {_code(result.text)}",
    ]
    if result.reproduction:
        fence = "`" * max(3, _longest(result.reproduction) + 1)
        text = result.reproduction.rstrip("\n")
        lines += ["", "<details><summary>Reproduction</summary>", ""]
        lines += [f"{fence}python", text, fence, "", "</details>"]
    return "\n".join((*lines, ""))


def _longest(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)


def _code(text: str) -> str:
    """Return a code span; it has one line."""
    text = " ".join(text.split()) or "-"
    fence = "`" * (_longest(text) + 1)
    space = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{space}{text}{space}{fence}"


def _prose(text: str) -> str:
    """Return text in which nothing but pairs of backticks means something: code."""
    parts = re.split("`([^`]+)`", " ".join(text.split()))
    return "".join(
        _code(part) if number % 2 else re.sub(_SPECIAL, r"\\\g<0>", part)
        for number, part in enumerate(parts)
    )
