"""Compares what was found in a library with what is listed in `known.py`."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import NamedTuple

from packaging.requirements import Requirement

from .look import Difference
from .run import Report, grouped


class Known(NamedTuple):
    """Differences of one reason: of each object that is named, by each way named.

    What is not seen any more is a failure, too, so that a row goes with its reason.
    """

    library: str
    objects: str
    """Patterns of names; `!` precedes those that are left out."""
    ways: str
    text: str
    """The beginning of what differs."""
    reason: str
    on: str = ""
    """The versions that have it, as a requirement; "" for all that are tested."""

    def applies(self) -> bool:
        """Whether this stack has it."""
        if not self.on:
            return True
        requirement = Requirement(self.on)
        python = requirement.name == "python"
        found = platform.python_version() if python else version(requirement.name)
        return requirement.specifier.contains(found, prereleases=True)

    def names(self, name: str) -> bool:
        """Whether it names an object."""
        patterns = self.objects.split()
        left_out = [each[1:] for each in patterns if each.startswith("!")]
        return not any(fnmatchcase(name, each) for each in left_out) and any(
            fnmatchcase(name, each) for each in patterns
        )

    def covers(self, difference: Difference) -> bool:
        """Whether it is the reason of a difference."""
        return (
            difference.way in self.ways.split()
            and difference.text.startswith(self.text)
            and self.names(difference.object)
        )

    def gone(self, report: Report) -> Iterator[str]:
        """Yield what it lists, and a report has not."""
        why = f"({self.reason})"
        for pattern in self.objects.split():
            bare = pattern.removeprefix("!")
            if not any(fnmatchcase(name, bare) for name in report.objects):
                yield f"there is no object {bare} {why}"
        found = {
            (each.object, each.way) for each in report.differences if self.covers(each)
        }
        named = [name for name in report.objects if self.names(name)]
        for way in self.ways.split():
            if missing := [name for name in named if (name, way) not in found]:
                yield f"by {way}: {self.text}, of {' '.join(missing)} {why}"


def problems(report: Report, known: Sequence[Known]) -> list[str]:
    """Return, in lines, what is not listed, and what is listed and not seen."""
    rows = [row for row in known if row.library == report.library and row.applies()]
    new = [
        each for each in report.differences if not any(row.covers(each) for row in rows)
    ]
    old = [line for row in rows for line in row.gone(report)]
    if report.ended:
        return [report.ended, *grouped(new)]
    return [
        *(["is not listed:"] if new else []),
        *grouped(new),
        *(["is listed, and not seen any more:"] if old else []),
        *(f"  {line}" for line in old),
    ]
