"""What a reader sees first, and how results are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dlx_check.conformance.records import UNNAMED
from dlx_check.conformance.result import RESULTS, Result
from dlx_check.conformance.results import Report

__all__ = [
    "NONE_KNOWN",
    "Known",
    "Tally",
    "accepted",
    "columns",
    "level",
    "likewise",
    "reasons",
    "roles",
    "tally",
    "unnamed",
]

Known: TypeAlias = Mapping[str, frozenset[str]]
"""Checks whose deviation the reader has accepted, by the names of targets."""

NONE_KNOWN: Known = {}
"""For readers who have accepted nothing."""

_ROLES = ("producer", "consumer", "table", "streams", "related", "robustness")


def accepted(report: Report, known: Known) -> frozenset[str]:
    """Return the known checks of the target of a report."""
    return known.get(report.header.target, frozenset())


def level(result: Result) -> str:
    """Return what a reader is told of the weight of a result."""
    return "ROBUSTNESS" if result.stimulus == "malformed" else result.level.upper()


def likewise(report: Report) -> str:
    """Return the mark of what NumPy does, too."""
    return f"NumPy {report.header.numpy} likewise"


def roles(report: Report) -> list[str]:
    """Return the roles that a report counts, robustness last."""
    last = len(_ROLES) - 1
    return sorted(
        report.counts,
        key=lambda role: _ROLES.index(role) if role in _ROLES else last - 0.5,
    )


def columns(report: Report) -> list[str]:
    """Return the results that occur in a report, in the order of `RESULTS`."""
    return [
        each for each in RESULTS if any(each in row for row in report.counts.values())
    ]


@dataclass(frozen=True)
class Tally:
    """How many checks of one level are met, of those that could be tested."""

    met: int
    tested: int

    def __str__(self) -> str:
        """Write it as in a badge: no percentage, for no two checks weigh the same."""
        return f"{self.met}/{self.tested}"


def tally(report: Report, level: str) -> Tally:
    """Count the checks of a level; a fact, and what is untestable, do not count."""
    found = [
        each
        for each in report.results
        if each.level == level and each.stimulus != "malformed"
    ]
    met = sum(each.result == "meets" for each in found)
    return Tally(met, met + sum(each.failed for each in found))


def reasons(results: Iterable[Result]) -> list[tuple[str, int]]:
    """Count the reasons for which results are untestable, the commonest first."""
    found = Counter(each.text for each in results if each.result == "untestable")
    return found.most_common()


def unnamed(results: Iterable[Result]) -> dict[str, int]:
    """Count the checks that need a tensor which the target does not name, by kind."""
    texts = [each.text for each in results if each.result == "untestable"]
    found = [text.removeprefix(UNNAMED) for text in texts if text.startswith(UNNAMED)]
    return dict(Counter(found).most_common())
