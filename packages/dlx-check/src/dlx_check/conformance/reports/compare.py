"""What changed between two reports of one target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlx_check.conformance.causes import by_effect
from dlx_check.conformance.reports.order import level
from dlx_check.conformance.reports.text import plain
from dlx_check.conformance.result import FAILED, Result
from dlx_check.conformance.results import Header, Report

__all__ = ["Change", "Comparison", "compare"]


@dataclass(frozen=True)
class Change:
    """One check that has a result in both reports, and another in each."""

    old: Result
    new: Result

    def __str__(self) -> str:
        """Say both results in a line."""
        line = f"{level(self.new):10} {self.new.check}  {_state(self.old)}"
        if _state(self.old) != _state(self.new):
            line += f" -> {_state(self.new)}"
        said = self.new.text or self.old.text
        if self.old.text and self.new.text and self.old.text != self.new.text:
            said = f"{self.old.text} -> {self.new.text}"
        return plain(f"{line}: {said}" if said else line)


@dataclass(frozen=True)
class Comparison:
    """What changed, the worst first in each of the lists."""

    old: Header
    new: Header
    deviates: tuple[Change, ...]
    """What is now not as required."""
    fixed: tuple[Change, ...]
    """What was not as required and now is."""
    changed: tuple[Change, ...]
    """What has another result, or says something else."""
    added: tuple[Result, ...]
    """Checks of the new report alone."""
    gone: tuple[Result, ...]
    """Checks of the old report alone."""

    def worse(self, known: frozenset[str] = frozenset()) -> list[Change]:
        """Return the checks of both reports that fail the new run as they did not.

        They did not fail the old run, or were deviations that are crashes now.
        """
        return [
            each
            for each in (*self.deviates, *self.changed)
            if each.new.fails_run
            and each.new.check not in known
            and (
                not each.old.fails_run
                or (each.old.result == "deviates" and each.new.result != "deviates")
            )
        ]

    def lines(self) -> Iterator[str]:
        """Say it in plain lines."""
        yield plain(f"{self.new.target}: {_versions(self.old)}")
        yield plain(f"{'now':>{len(self.new.target)}}: {_versions(self.new)}")
        same = self.old.suite == self.new.suite
        for title, found in (
            ("new deviations", self.deviates),
            ("fixed", self.fixed),
            ("changed", self.changed),
            ("not in the old run" if same else "checks added", self.added),
            ("not in the new run" if same else "checks withdrawn", self.gone),
        ):
            if found:
                yield ""
                yield f"{title}: {len(found)}"
            for each in found:
                yield f"  {each if isinstance(each, Change) else _alone(each)}"
        if not any((self.deviates, self.fixed, self.changed, self.added, self.gone)):
            yield "no result changed"


def compare(old: Report, new: Report) -> Comparison:
    """Compare two reports of one target by the names of their checks."""
    before = {each.check: each for each in old.results}
    after = {each.check: each for each in new.results}
    both = [
        Change(before[name], after[name])
        for name in after
        if name in before and _said(before[name]) != _said(after[name])
    ]
    deviates = [each for each in both if _wrong(each.new) and not _wrong(each.old)]
    fixed = [each for each in both if _wrong(each.old) and _met(each.new)]
    order = {each.check: n for n, each in enumerate(by_effect(new.results))}
    deviates.sort(key=lambda each: order[each.new.check])
    return Comparison(
        old.header,
        new.header,
        tuple(deviates),
        tuple(fixed),
        tuple(each for each in both if each not in deviates and each not in fixed),
        tuple(after[name] for name in after if name not in before),
        tuple(before[name] for name in before if name not in after),
    )


def _versions(head: Header) -> str:
    return (
        f"{head.version} (suite {head.suite}, dlx {head.dlx}, NumPy {head.numpy}, "
        f"Python {head.python}, {head.platform})"
    )


def _alone(result: Result) -> str:
    said = f": {result.text}" if result.text else ""
    return plain(f"{level(result):10} {result.check}  {_state(result)}{said}")


def _state(result: Result) -> str:
    unsure = " (unconfirmed)" if result.confirmed == "unconfirmed" else ""
    return result.result + unsure


def _said(result: Result) -> tuple[str, str]:
    return _state(result), result.text


def _wrong(result: Result) -> bool:
    return result.result in FAILED and result.confirmed != "unconfirmed"


def _met(result: Result) -> bool:
    return result.result in ("meets", "fact")
