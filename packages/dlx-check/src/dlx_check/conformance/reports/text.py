"""A report in plain lines, for a terminal or a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from dlx_check.conformance.causes import Cause, causes
from dlx_check.conformance.reports.order import (
    columns,
    level,
    likewise,
    reasons,
    roles,
    unnamed,
)
from dlx_check.conformance.result import Result
from dlx_check.conformance.results import Report

__all__ = ["describe", "file_name", "plain", "verdict"]

_SHOWN = 12
"""Checks that are shown."""
_OF_ONE = 4
"""Checks of one cause that are shown."""


def plain(text: str) -> str:
    """Return text in which no character moves a cursor or ends a line."""
    return "".join(each if each.isprintable() else "?" for each in text)


def file_name(text: str) -> str:
    """Return a name that is the same in every file system, and in no other folder."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip(".")[:80] or "unnamed"


def describe(
    report: Report, everything: bool, known: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Write a report: counts, then what is not as required by causes, the worst first.

    With `everything`, all of that, what was expected, the facts, and the reasons for
    which checks are untestable; without, what is new. A requirement stands once, below
    all of a cause that miss it. The last line says what to mend first.
    """
    yield from map(plain, _described(report, everything, known))


def _described(
    report: Report, everything: bool, known: frozenset[str]
) -> Iterator[str]:
    head = report.header
    yield (
        f"{head.target} {head.version}, suite {head.suite} (DLPack 1.3), CPU; "
        f"{head.checks} checks in {report.seconds:.1f} s"
    )
    yield ""
    yield from _table(report)
    if kinds := unnamed(report.results):
        checks = sum(kinds.values())
        yield (
            f"{checks} checks need tensors that the target does not name in `tensors`: "
            f"{', '.join(kinds)}"
        )
    found = causes(report.results)
    new = [each for each in report.results if each.check not in known]
    chosen = found if everything else causes(new)
    shown = 0
    for title, several in groupby(enumerate(chosen, 1), lambda each: _title(each[1])):
        if shown >= _SHOWN and not everything:
            break
        yield ""
        yield title
        for number, cause in several:
            if shown >= _SHOWN and not everything:
                break
            count = None if everything else min(_OF_ONE, _SHOWN - shown)
            shown += len(cause.results[:count])
            yield from _cause(number, cause, report, known, count)
    if everything:
        yield from _rest(report.results)
    yield ""
    count = sum(len(each.results) for each in found)
    fresh = sum(len(each.results) for each in causes(new))
    if count > shown:
        hidden = f"{fresh - shown} more, {count - fresh} known"
        yield f"{hidden}, facts and what is untestable: --all"
    proven = sum(
        each.failed and each.confirmed == "reproduced"
        for cause in found
        for each in cause.results
    )
    if proven:
        yield f"{proven} have a reproduction without dlx: --repros DIR"
    yield from _first(causes(new), report)


def _first(found: Sequence[Cause], report: Report) -> Iterator[str]:
    """Say what to mend first."""
    grave = [each for each in found if each.results[0].fails_run]
    if not grave:
        return
    theirs = sum(each.like_numpy for each in grave)
    also = f" ({theirs} of them {likewise(report)})" if theirs else ""
    names = [each.check for each in grave[0].results]
    more = f" and {len(names) - 1} more" if names[1:] else ""
    noun = "causes fail" if grave[1:] else "cause fails"
    yield (
        f"{len(grave)} {noun} the run{also}; start with 1, "
        f"{grave[0].effect}: {names[0]}{more}"
    )


def _table(report: Report) -> Iterator[str]:
    counts, used = report.counts, columns(report)
    yield " " * 10 + "".join(f"{name:>12}" for name in used)
    for role in roles(report):
        numbers = (counts[role].get(name, 0) or "-" for name in used)
        line = f"{role:10}" + "".join(f"{number:>12}" for number in numbers)
        mine = [each for each in report.results if each.role == role]
        if mine and all(each.result == "untestable" for each in mine):
            line += f"   {reasons(mine)[0][0]}"
        yield line


def _title(cause: Cause) -> str:
    result = cause.results[0]
    if result.result == "error":
        return "Faults of the suite, which say nothing of the target"
    if result.fails_run:
        return "Fails the run: a MUST, or wrong numbers or freed memory"
    if result.stimulus == "malformed":
        return "Robustness: stimuli that no producer may send, not counted"
    return "Fails no run"


def _cause(
    number: int,
    cause: Cause,
    report: Report,
    known: frozenset[str],
    count: int | None,
) -> Iterator[str]:
    """Write a cause: this many of its checks, or all and what was expected."""
    marks = f", {likewise(report)}" if cause.like_numpy else ""
    yield f"{number}. effect on a user: {cause.effect}{marks}"
    required = [_required(each) for each in cause.results]
    # Whatever misses one requirement stands together, above it.
    several = sorted(cause.results, key=lambda each: required.index(_required(each)))
    for text, same in groupby(several[:count], _required):
        for result in same:
            yield from _lines(result, cause, report, count is None, known)
        yield text
    if hidden := len(several) - len(several[:count]):
        yield f"{'':10} and {hidden} more of this cause: --all"


def _lines(
    result: Result, cause: Cause, report: Report, expected: bool, known: frozenset[str]
) -> Iterator[str]:
    marks = [f"effect: {result.effect}"] * (result.effect != cause.effect)
    marks += [likewise(report)] * (result.like_numpy and not cause.like_numpy)
    marks += ["known"] * (result.check in known)
    marks += ["unconfirmed"] * (result.confirmed == "unconfirmed")
    marks += ["only after other checks"] * result.only_after
    how = f"{result.result} ({', '.join(marks)})" if marks else result.result
    yield f"{level(result):10} {result.check}  {how}: {result.text}"
    if expected:
        yield f"{'':10} expected: {result.expected}"


def _required(result: Result) -> str:
    names = " ".join(result.requirements)
    derived = ", derived" if result.derived else ""
    return f"{'':10} {result.source}{derived}: {result.statement} ({names})"


def _rest(results: Sequence[Result]) -> Iterator[str]:
    """Give what is neither met nor missed."""
    facts = [each for each in results if each.result == "fact"]
    if facts:
        yield ""
        yield "Facts: what the target does where it has a choice"
    for each in facts:
        yield f"{'FACT':10} {each.check}: {each.text}"
    if untested := reasons(results):
        yield ""
        yield "Untestable, by reason"
    for reason, count in untested:
        yield f"{count:10} {reason}"


def verdict(report: Report, known: frozenset[str] = frozenset()) -> str:
    """Say in a line what the exit code of a run means."""
    grave = [each for each in report.results if each.fails_run]
    accepted = sum(each.check in known for each in grave)
    if any(result.result == "error" for result in report.results):
        return "exit 2: the suite itself failed, or the description of the target"
    if len(grave) > accepted:
        more = f"; {accepted} are known" if accepted else ""
        return f"exit 1: results that fail the run: {len(grave) - accepted}{more}"
    return "exit 0: nothing fails the run"
