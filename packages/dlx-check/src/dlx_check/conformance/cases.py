"""Checks as cases of pytest: each passes, is skipped, xfails or fails by its result.

    @pytest.mark.parametrize("case", dlx_check.cases("mylib.dlpack:target"))
    def test_dlpack(case):
        case.check()

The first case that is asked runs all that were selected, in processes of the suite, and
the others read their results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from dlx_check.conformance.causes import causes
from dlx_check.conformance.deviations import FILE, Deviations, Verdict, find
from dlx_check.conformance.reports.order import likewise
from dlx_check.conformance.result import FAILED, Result
from dlx_check.conformance.results import Report
from dlx_check.conformance.run import run, select
from dlx_check.conformance.suite import SUITE
from dlx_check.conformance.suite.row import Check
from dlx_check.conformance.target import CannotCheck

__all__ = ["Batch", "Case", "cases", "narrow"]


class Batch:
    """The checks of one target, which run together."""

    def __init__(
        self, target: str, checks: Sequence[Check], deviations: Deviations
    ) -> None:
        """Run nothing yet."""
        self.target, self.deviations = target, deviations
        self.wanted = frozenset(check.id for check in checks)
        """The names of those to run when the first is asked for."""
        self._checks = checks
        self._verdicts: dict[str, Verdict] = {}
        self._reports: list[Report] = []
        self._name = ""
        self.cannot = ""
        """Why the target cannot be checked, once that was tried."""

    def verdict(self, name: str) -> Verdict:
        """Return what a check's result means; run what was not yet run."""
        if name not in self._verdicts:
            self._run(self.wanted if name in self.wanted else {name})
        return self._verdicts[name]

    def applying(self) -> Deviations:
        """Return the deviations file, empty if it is about another target."""
        if not self._name:
            self._run(self.wanted)
        return self.deviations.of(self._name)

    def beside(self, name: str) -> Iterator[str]:
        """Say what NumPy does, and which checks seem to fail for the same cause."""
        for report in self._reports:
            for cause in causes(report.results):
                names = [each.check for each in cause.results]
                if name not in names:
                    continue
                if cause.results[names.index(name)].like_numpy:
                    yield likewise(report)
                if others := ", ".join(each for each in names if each != name):
                    yield f"the same cause, as it seems: {others}"

    def _run(self, names: Collection[str]) -> None:
        try:
            chosen = [check for check in self._checks if check.id in names]
            report = run(self.target, chosen)
            judged = self.deviations.judge(report)
        except CannotCheck as reason:
            self.cannot = str(reason)
            raise
        self._name = report.header.target
        self._reports.append(report)
        self._verdicts |= {v.result.check: v for v in judged.verdicts}


class Case:
    """One check of one target, or its deviations file as a whole."""

    def __init__(self, batch: Batch, name: str) -> None:
        """Name a check, or the file."""
        # By this attribute `parametrize` finds an id.
        self.batch, self.__name__ = batch, name

    def __repr__(self) -> str:
        """Return the target and the check."""
        return f"<{self.batch.target}: {self.__name__}>"

    def check(self) -> None:
        """Pass, or end the test as pytest does.

        Skips what is untestable; xfails what the deviations file knows, and what fails
        no run. Fails for all else, and for an entry that a strict run refuses.
        """
        import pytest

        if self.batch.cannot:
            pytest.skip(f"cannot check {self.batch.target}")
        try:
            if self.__name__ not in self.batch.wanted and self._is_file:
                file = self.batch.applying()
                if not file.path:
                    pytest.skip(f"it is about {self.batch.deviations.target}")
                if file.unknown:
                    pytest.fail("\n".join(file.unknown), pytrace=False)
                return
            verdict = self.batch.verdict(self.__name__)
        except CannotCheck as reason:
            pytest.fail(f"cannot check {reason}", pytrace=False)
        text = "\n".join(_explained(verdict.result, self.batch))
        if verdict.complaint:
            # Of pytest's own words: an entry whose deviation is gone is an XPASS.
            gone = "[XPASS(strict)] " if verdict.means == "meets" else ""
            pytest.fail(f"{gone}{verdict.complaint}\n{text}", pytrace=False)
        if verdict.means == "untestable":
            pytest.skip(verdict.result.text)
        if verdict.means != "meets":
            if verdict.means not in ("fails", "error"):
                pytest.xfail(_tolerated(verdict))
            pytest.fail(text, pytrace=False)

    @property
    def _is_file(self) -> bool:
        return self.__name__ == Path(self.batch.deviations.path).name


def cases(
    target: str,
    *,
    only: Sequence[str] = (),
    role: str = "",
    level: str = "",
    suite: str = SUITE,
    deviations: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] = "",
) -> list[Case]:
    """Return a case for each check of a target that is selected, as by `select`.

    `deviations` is a file of known deviations; by default that of `folder`, which is
    the working directory (`dlpack-deviations.toml`, or what its pyproject.toml names).
    If there is one, the last case is the file itself, which fails if it names checks
    that do not exist. Raises `CannotCheck` for a file that cannot be read. The target
    is imported when the first case is checked; if that cannot be, this case fails and
    the others are skipped.
    """
    known = find(deviations, Path(folder))
    batch = Batch(target, select(only, role, level, suite), known)
    names = [check.id for check in batch._checks]
    if known.path:
        names.append(Path(known.path).name)
    return [Case(batch, name) for name in names]


def narrow(selected: Sequence[Case]) -> None:
    """Have each batch run those of its checks that are selected, and no others."""
    names: dict[Batch, set[str]] = {}
    for case in selected:
        names.setdefault(case.batch, set()).add(case.__name__)
    for batch, found in names.items():
        batch.wanted &= found


def _tolerated(verdict: Verdict) -> str:
    """Say why what is not as required fails no run."""
    result, entry = verdict.result, verdict.entry
    if verdict.means == "known" and entry is not None:
        return f"{entry.reason} ({entry.link})"
    if verdict.means == "newer":
        why = "newer than the deviations file's suite"
    elif result.stimulus == "malformed":
        why = "malformed input, not counted"
    elif result.confirmed == "unconfirmed":
        why = "unconfirmed: the reproduction ends well"
    else:
        why = f"a {result.level.upper()}"
    return f"{why}: {result.text}"


def _explained(result: Result, batch: Batch) -> Iterator[str]:
    """Say what was seen, what requires another thing, and how to see it again."""
    again = f"python -m dlx check {batch.target} --only {result.check}"
    if result.result not in (*FAILED, "error"):
        yield f"again: {again}"
        return
    yield f"{result.result}: {result.text}"
    if result.result == "error":
        yield str(result.record.get("traceback", ""))
        return
    derived = ", as dlx reads it" if result.derived else ""
    names = " ".join(result.requirements)
    yield f"{result.level.upper()}{derived} ({result.source}; {names}): " + (
        result.statement
    )
    yield f"expected: {result.expected}"
    yield f"effect on a user: {result.effect}"
    yield from batch.beside(result.check)
    if result.reproduction:
        yield "reproduction, which needs no dlx:"
        yield ""
        yield from (f"    {line}" for line in result.reproduction.splitlines())
        yield ""
    elif result.record:
        yield f"seen: {json.dumps(result.record)}"
    yield f"again: {again}"
    if result.fails_run and result.check not in batch.deviations.entries:
        file = batch.deviations.path or FILE
        yield (
            f"known to you? python -m dlx check {batch.target} --write-deviations "
            + file
        )
