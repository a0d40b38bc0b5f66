"""A report in plain lines, for a terminal or a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from dlx_check.conformance.reports.order import (
    by_effect,
    columns,
    level,
    reasons,
    roles,
    unnamed,
)
from dlx_check.conformance.results import Report, Result

__all__ = ["describe", "file_name", "plain", "verdict"]

_SHOWN = 12


def plain(text: str) -> str:
    """Return text in which no character moves a cursor or ends a line."""
    return "".join(each if each.isprintable() else "?" for each in text)


def file_name(text: str) -> str:
    """Return a name that is the same in every file system, and in no other folder."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip(".")[:80] or "unnamed"


def describe(
    report: Report, everything: bool, known: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Write a report: counts, then what is not as required, the worst first.

    With `everything`, all of that, what was expected, the facts, and the reasons for
    which checks are untestable; without, what is new. A requirement stands once, below
    all that miss it.
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
    found = by_effect(report.results)
    new = [each for each in found if each.check not in known]
    shown = found if everything else new[:_SHOWN]
    for group, several in groupby(shown, _group):
        yield ""
        yield group
        for required, same in groupby(several, _required):
            for result in same:
                yield from _lines(result, everything, known)
            yield required
    if everything:
        yield from _rest(report.results)
    yield ""
    if len(found) > len(shown):
        hidden = f"{len(new) - len(shown)} more, {len(found) - len(new)} known"
        yield f"{hidden}, facts and what is untestable: --all"
    proven = sum(each.failed and each.confirmed == "reproduced" for each in found)
    if proven:
        yield f"{proven} have a reproduction without dlx: --repros DIR"


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


def _group(result: Result) -> str:
    if result.result == "error":
        return "Faults of the suite, which say nothing of the target"
    if result.fails_run:
        return "Fails the run: a MUST, or wrong numbers or freed memory"
    if result.stimulus == "malformed":
        return "Robustness: stimuli that no producer may send, not counted"
    return "Fails no run"


def _lines(result: Result, everything: bool, known: frozenset[str]) -> Iterator[str]:
    marks = [result.effect]
    marks += ["known"] * (result.check in known)
    marks += ["unconfirmed"] * (result.confirmed == "unconfirmed")
    marks += ["only after other checks"] * result.only_after
    how = f"{result.result} ({', '.join(marks)})"
    yield f"{level(result):10} {result.check}  {how}: {result.text}"
    if everything:
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
