"""Pairs of checks: which earlier one gives a later one a result that it has not alone.

A result is `only_after` others if it was another in the child that ran all of them.
`pairs` runs the later check behind half of the earlier ones, a half of these, and so
on, each time in a fresh child.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlx_check.conformance.isolate import zygotes
from dlx_check.conformance.results import Report
from dlx_check.conformance.run import _all
from dlx_check.conformance.suite import CHECKS
from dlx_check.conformance.target import CannotCheck

__all__ = ["Pair", "pairs"]

_CHECKS = {check.id: check for check in CHECKS}


@dataclass(frozen=True)
class Pair:
    """A check whose result depends on an earlier one."""

    check: str
    alone: str
    """Its result alone, which counts."""
    after: str
    """Its result behind `earlier`, or ""."""
    earlier: str
    """The earlier check, or "" if no single one suffices."""
    tried: int
    """The number of checks before it."""

    def __str__(self) -> str:
        """Return one sentence."""
        if self.earlier:
            return f"{self.check} {self.after} only after {self.earlier}"
        if self.after:
            return (
                f"{self.check} {self.after} only after several of the {self.tried} "
                "checks before it"
            )
        return f"{self.check} {self.alone} after others, too, this time"


def pairs(target: str, report: Report) -> Iterator[Pair]:
    """Find the pair of each result that is `only_after` others."""
    found = [result for result in report.results if result.only_after]
    if not found:
        return
    with zygotes(target) as [zygote]:
        answer = zygote.answer()
        if "cannot" in answer:
            raise CannotCheck(f"{target}: {answer['cannot']}")
        limit = answer["target"]["timeout"]
        # What ends its child leaves nothing to a later check.
        ran = _applying(answer).difference(
            r.check for r in report.results if r.result in ("crashes", "hangs")
        )
        order = [each.check for each in report.results]

        def after(earlier: list[str], check: str, alone: str) -> str:
            """Return the result behind others, or "" if it is that alone."""
            chosen = {name: _CHECKS[name] for name in (*earlier, check)}
            result = _all(zygote, chosen, limit)[check][0]
            return "" if result == alone else result

        for result in found:
            name, alone = result.check, result.result
            earlier = [e for e in order[: order.index(name)] if e in ran]
            tried, seen = len(earlier), after(earlier, name, alone)
            while seen and len(earlier) > 1:
                middle = len(earlier) // 2
                for half in (earlier[:middle], earlier[middle:]):
                    if after(half, name, alone):
                        earlier = half
                        break
                else:
                    break
            only = earlier[0] if seen and len(earlier) == 1 else ""
            yield Pair(name, alone, seen, only, tried)


def _applying(answer: dict[str, dict[str, str]]) -> set[str]:
    """Return the checks that the target means to be subject to."""
    profiles = answer["target"]["profiles"].split()
    return {check.id for check in CHECKS if check.profile in profiles}
