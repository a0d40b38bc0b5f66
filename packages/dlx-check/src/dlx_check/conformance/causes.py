"""What is not as required, put together by its cause, first what to mend first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dlx_check.conformance.result import FAILED, STRIDES, Result
from dlx_check.conformance.suite.row import EFFECTS

__all__ = ["Cause", "by_effect", "causes"]


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
