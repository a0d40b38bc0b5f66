"""What a record has to say: predicates, each with the sentence for the report.

An expectation answers with what is wrong, or None. It has no access to the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlx.check.records import Record

__all__ = [
    "Expectation",
    "accepted",
    "all_of",
    "clean",
    "deleted_once",
    "either",
    "elsewhere",
    "equal",
    "expected",
    "note",
    "refused",
    "unaffected",
]


@dataclass(frozen=True)
class Expectation:
    """A predicate on records, and what it asks for."""

    text: str
    wrong: Callable[[Record], str | None]


def all_of(*parts: Expectation) -> Expectation:
    """Ask for all; the first that is wrong speaks."""

    def wrong(record: Record) -> str | None:
        return next((said for part in parts if (said := part.wrong(record))), None)

    return Expectation(" and ".join(part.text for part in parts), wrong)


def either(*parts: Expectation) -> Expectation:
    """Ask for one of several; the last speaks if none holds."""

    def wrong(record: Record) -> str | None:
        said = None
        for part in parts:
            said = part.wrong(record)
            if said is None:
                return None
        return said

    return Expectation(" or ".join(part.text for part in parts), wrong)


def raising(record: Record) -> str:
    """Say what was raised."""
    assert record.raised is not None
    return f"{record.raised.type}: {record.raised.message}"


def expected(text: str, holds: Callable[[Record], object], says: str) -> Expectation:
    """Make an expectation of a condition and what is said where it does not hold."""
    return Expectation(text, lambda record: None if holds(record) else says)


def note(name: str, value: object, text: str, says: str) -> Expectation:
    """Ask for a value among the notes; a note that is not there says nothing."""
    return expected(text, lambda r: r.notes.get(name, value) == value, says)


def _accepted(record: Record) -> str | None:
    return None if record.raised is None else f"raises {raising(record)}"


accepted = Expectation("it is accepted", _accepted)


def refused(*kinds: type[BaseException]) -> Expectation:
    """Ask for an exception, of one of these classes if any are named."""
    names = [kind.__name__ for kind in kinds]

    def wrong(record: Record) -> str | None:
        if record.raised is None:
            return "raises nothing"
        if names and not set(names) & set(record.raised.bases):
            return f"raises {raising(record)}"
        return None

    return Expectation(f"{' or '.join(names) or 'an exception'} is raised", wrong)


def _deleted_once(record: Record) -> str | None:
    while_alive = record.notes.get("deleted while alive", [])
    shares = record.notes.get("shares")
    if shares and any(while_alive):
        return "calls the deleter while its tensor shares the memory"
    for count in record.notes.get("deleted", []):
        if count != 1:
            return f"the deleter was called {count} times"
    return None


deleted_once = Expectation("each deleter is called once", _deleted_once)


def _clean(record: Record) -> str | None:
    return _deleted_once(record)


clean = Expectation("nothing leaks and nothing is freed twice", _clean)


def _equal(record: Record) -> str | None:
    if record.shown is None or record.shown.equal:
        return None
    shown = record.shown
    return f"shows {shown.values}, of shape {shown.shape} and dtype {shown.dtype}"


equal = Expectation("its elements are those of the producer", _equal)

elsewhere = note(
    "shares",
    False,
    "the elements are in other memory",
    "shares memory: the address is in the producer's",
)


def _unaffected(record: Record) -> str | None:
    if record.notes.get("follows"):
        return "shares memory: it changes when the producer's memory changes"
    if record.notes.get("affects"):
        return "shares memory: what is written to it changes the producer's memory"
    return None


unaffected = Expectation("writes on one side are not seen on the other", _unaffected)
