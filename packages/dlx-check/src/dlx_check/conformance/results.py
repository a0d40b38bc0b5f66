"""The results of a run, and their form as lines of JSON, `dlx-check/1`.

A report has one object on each line, by its "kind":

- `header`: "format" (`dlx-check/1`), "suite" (its version), "target" and "version" (of
  the library), "dlx" (the version of dlx_check, which is dlx's), "python", "numpy",
  "platform" (strings), "checks" (a number).
- `result`, one for each check, in the order of the suite: the fields of `Result` under
  their names. "record" is what was seen (`dlx_check.conformance.records.Record`).
- `footer`: "counts" (role to result to number), "causes" (lists of checks, in the order
  in which to mend them) and "seconds". A report without it is of a run that was cut
  off, and `Report.read` refuses it.

Everything but "seconds" is the same in two runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from dlx_check.conformance.suite.row import EFFECTS

__all__ = [
    "FAILED",
    "FORMAT",
    "RESULTS",
    "STRIDES",
    "Cause",
    "CutOff",
    "Header",
    "Report",
    "Result",
    "by_effect",
    "causes",
]

FORMAT = "dlx-check/1"

RESULTS = (
    "meets",
    "deviates",
    "crashes",
    "hangs",
    "untestable",
    "fact",
    "error",
)
"""What a result can be; `error` is a fault of the suite, not of the target."""

FAILED = ("deviates", "crashes", "hangs")
"""What is not as required."""

STRIDES = "strides count "
"""How the sentence begins that tells of strides: elements are wrong only by them."""


class CutOff(Exception):
    """A file is no report, or that of a run that was cut off; the message says why."""


@dataclass(frozen=True)
class Result:
    """What one check found."""

    check: str
    """Its name, `role.what.detail`."""
    role: str
    """producer, consumer, table, streams or related."""
    requirements: tuple[str, ...]
    """R-numbers of requirements.tsv; never shown alone."""
    source: str
    """What requires it, in words: "array API, `from_dlpack`"."""
    statement: str
    """The first requirement's text."""
    expected: str
    """What the check asks for."""
    level: str
    """must, should, or conflict (the sources disagree)."""
    derived: bool
    """Whether the requirement is dlx's reading of its sources."""
    stimulus: str
    """legal, older, or malformed ("robustness": not counted)."""
    effect: str
    """What a deviation does to a user; one of `suite.row.EFFECTS`."""
    result: str
    """One of `RESULTS`."""
    text: str
    """One sentence: what was seen, or why it cannot be tested."""
    record: dict[str, Any]
    """What was seen, as JSON."""
    confirmed: str = ""
    """How what is not as required was confirmed: "alone" (again in a fresh process),
    "reproduced" (the reproduction ended as it says), or "unconfirmed" (it did not)."""
    only_after: bool = False
    """Whether the result was another among other checks; the lone one counts."""
    like_numpy: bool = False
    """Whether NumPy, of the version in the header, does the same: its result of this
    check, in a run beside this one, has the same words."""
    reproduction: str = ""
    """A program of the target, NumPy and ctypes, which ends with an `AssertionError`,
    or as the target ends it, while the deviation is there."""

    no_reproduction: str = ""
    """Why there is none of a deviation that was confirmed "alone"."""

    @property
    def failed(self) -> bool:
        """Return whether it is not as required, by a legal or older stimulus."""
        return (
            self.result in FAILED
            and self.stimulus != "malformed"
            and self.confirmed != "unconfirmed"
        )

    @property
    def fails_run(self) -> bool:
        """Return whether a run fails by it: a MUST, or numbers or memory at stake."""
        grave = self.effect in ("wrong numbers", "memory freed")
        return self.failed and (self.level == "must" or grave)

    def to_json(self) -> dict[str, Any]:
        """Return the line of a report."""
        return {"kind": "result", **asdict(self)}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Result:
        """Read a line of a report; fields that are not known are left out."""
        known = _known(cls, line)
        known["requirements"] = tuple(map(str, known["requirements"]))
        if known["result"] not in RESULTS:
            raise TypeError(f"no result is called {known['result']}")
        return cls(**known)


@dataclass(frozen=True)
class Cause:
    """What is not as required and has, as far as can be told, one cause.

    That is what misses one requirement, or was seen in the same words with the same
    effect, in one role.
    """

    results: tuple[Result, ...]
    """The worst first."""

    @property
    def effect(self) -> str:
        """Return the worst effect on a user."""
        return self.results[0].effect

    @property
    def like_numpy(self) -> bool:
        """Return whether NumPy does all of it, too."""
        return all(each.like_numpy for each in self.results)


def by_effect(results: Iterable[Result]) -> list[Result]:
    """Return what is not as required: what fails a run first, then by its effect.

    Faults of the suite come before, for they say that something is not known. What
    malformed stimuli do comes last: no producer may send them.
    """
    found = [each for each in results if each.result in (*FAILED, "error")]
    return sorted(
        found,
        key=lambda each: (
            *_weight(each),
            EFFECTS.index(each.effect) if each.effect in EFFECTS else len(EFFECTS),
        ),
    )


def _weight(result: Result) -> tuple[bool, ...]:
    return (
        result.result != "error",
        not result.fails_run,
        result.stimulus == "malformed",
    )


def causes(results: Iterable[Result]) -> list[Cause]:
    """Put what is not as required together by its cause, first what to mend first.

    That is what fails a run; of that, what NumPy does not do likewise; of that, what
    explains others; of that, what has the worst effect.
    """
    grouped: list[list[Result]] = []
    for each in by_effect(results):
        for group in grouped:
            if any(_akin(each, other) for other in group):
                group.append(each)
                break
        else:
            grouped.append([each])
    for group in grouped:
        # Who tells of a keyword itself speaks for those who need it.
        group.sort(key=lambda each: not each.check.startswith("producer.keyword."))
    found = [Cause(tuple(group)) for group in grouped]
    return sorted(
        found,
        key=lambda each: (
            _weight(each.results[0]),
            each.like_numpy,
            not any(_explains(result) for result in each.results),
        ),
    )


def _explains(result: Result) -> bool:
    """Return whether others follow from it, as far as can be told."""
    return result.requirements[:1] == ("R20",) or result.text.startswith(STRIDES)


def _akin(one: Result, other: Result) -> bool:
    """Return whether two results seem to have one cause."""
    alike = _explains(one) and _explains(other)
    if _weight(one) != _weight(other) or (one.role != other.role and not alike):
        return False
    said = (one.result, one.effect, one.text) == (
        other.result,
        other.effect,
        other.text,
    )
    return said or one.requirements[:1] == other.requirements[:1]


_KINDS = {
    "str": str,
    "bool": bool,
    "int": int,
    "tuple[str, ...]": list,
    "dict[str, Any]": dict,
}


def _known(cls: type[Any], line: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a class in a line; raise `TypeError` if one is otherwise.

    What has a default may be left out, so that older reports can be read.
    """
    found = {each.name: each for each in fields(cls) if each.name in line}
    for name, each in found.items():
        if not isinstance(line[name], _KINDS.get(str(each.type), object)):
            raise TypeError(f"{name} is a {type(line[name]).__name__}")
    return {name: line[name] for name in found}


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
            header = Header(**_known(Header, found[0]))
            results = tuple(Result.from_json(line) for line in found[1:-1])
            return cls(header, results, float(found[-1]["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CutOff(f"a line is not as the format asks: {error}") from None
