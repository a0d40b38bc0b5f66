"""The results of a run, and their form as lines of JSON, `dlx-check/1`.

A report has one object on each line, by its "kind":

- `header`: "format" (`dlx-check/1`), "suite" (its version), "target" and "version" (of
  the library), "dlx" (the version of dlx_check, which is dlx's), "python", "numpy",
  "platform" (strings), "checks" (a number).
- `result`, one for each check, in the order of the suite: the fields of
  `dlx_check.conformance.result.Result` under their names. "record" is what was seen
  (`dlx_check.conformance.records.Record`).
- `footer`: "counts" (role to result to number), "causes" (lists of checks, in the order
  in which to mend them) and "seconds". A report without it is of a run that was cut
  off, and `Report.read` refuses it.

Everything but "seconds" is the same in two runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dlx_check.conformance.causes import causes
from dlx_check.conformance.result import Result, known

__all__ = ["FORMAT", "CutOff", "Header", "Report", "Result"]

FORMAT = "dlx-check/1"


class CutOff(Exception):
    """A file is no report, or that of a run that was cut off; the message says why."""


@dataclass(frozen=True)
class Header:
    """What was run where."""

    suite: str
    target: str
    version: str
    dlx: str
    python: str
    numpy: str
    platform: str
    checks: int
    format: str = FORMAT

    def to_json(self) -> dict[str, Any]:
        """Return the line of a report."""
        return {"kind": "header", **asdict(self)}


@dataclass(frozen=True)
class Report:
    """A whole run."""

    header: Header
    results: tuple[Result, ...]
    seconds: float

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many results there are: by role, then by result.

        Malformed stimuli are counted under the role "robustness".
        """
        counted: dict[str, Counter[str]] = {}
        for result in self.results:
            robust = result.stimulus == "malformed"
            role = "robustness" if robust else result.role
            counted.setdefault(role, Counter())[result.result] += 1
        return {role: dict(counts) for role, counts in counted.items()}

    @property
    def exit_code(self) -> int:
        """Return 2 if the suite itself failed, 1 if the target did, else 0."""
        if any(result.result == "error" for result in self.results):
            return 2
        return int(any(result.fails_run for result in self.results))

    def lines(self) -> Iterator[str]:
        """Give the lines of the report, without line ends."""
        yield json.dumps(self.header.to_json())
        for result in self.results:
            yield json.dumps(result.to_json())
        grouped = [[r.check for r in each.results] for each in causes(self.results)]
        footer = {"counts": self.counts, "causes": grouped, "seconds": self.seconds}
        yield json.dumps({"kind": "footer", **footer})

    @classmethod
    def read(cls, lines: Iterable[str]) -> Report:
        """Read the lines of a report; raise `CutOff` if they are not all there."""
        try:
            found = [json.loads(line) for line in lines if line.strip()]
        except (ValueError, RecursionError) as error:
            raise CutOff(f"a line is not JSON: {error}") from None
        kinds = [each.get("kind") for each in found if isinstance(each, dict)]
        if len(kinds) < len(found):
            raise CutOff("a line is no JSON object")
        if not found or kinds[0] != "header" or found[0].get("format") != FORMAT:
            raise CutOff(f"not a report of the format {FORMAT}")
        if kinds[-1] != "footer":
            raise CutOff("the report has no footer: its run was cut off")
        try:
            header = Header(**known(Header, found[0]))
            results = tuple(Result.from_json(line) for line in found[1:-1])
            return cls(header, results, float(found[-1]["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CutOff(f"a line is not as the format asks: {error}") from None
