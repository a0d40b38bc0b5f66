"""What a record has to say: predicates, each with the sentence for the report.

An expectation answers with what is wrong, or None. It has no access to the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dlx_check.conformance.records import Record
from dlx_check.conformance.result import WRITES


@dataclass(frozen=True)
class Expectation:
    """A predicate on records, and what it asks for."""

    text: str
    wrong: Callable[[Record], str | None]
    of_raising: bool = False
    """Whether it also says something of a target that raised: of what it raised, or of
    what it asked before."""
    of_elements: bool = False
    """Whether it says something of elements that the target shows."""
    of_flags: bool = False
    """Whether it says something of flags, which an unversioned capsule has not."""


def all_of(*parts: Expectation) -> Expectation:
    """Ask for all; the first that is wrong speaks."""

    def wrong(record: Record) -> str | None:
        return next((said for part in parts if (said := part.wrong(record))), None)

    return _joined(" and ", parts, wrong)


def either(*parts: Expectation) -> Expectation:
    """Ask for one of several; the last speaks if none holds."""

    def wrong(record: Record) -> str | None:
        said = None
        for part in parts:
            said = part.wrong(record)
            if said is None:
                return None
        return said

    return _joined(" or ", parts, wrong)


def _joined(
    word: str,
    parts: tuple[Expectation, ...],
    wrong: Callable[[Record], str | None],
) -> Expectation:
    return Expectation(
        word.join(part.text for part in parts),
        wrong,
        any(part.of_raising for part in parts),
        any(part.of_elements for part in parts),
        any(part.of_flags for part in parts),
    )


def raising(record: Record) -> str:
    """Say what was raised."""
    assert record.raised is not None
    return f"{record.raised.type}: {record.raised.message}"


def expected(
    text: str,
    holds: Callable[[Record], object],
    says: str,
    *,
    of_raising: bool = False,
) -> Expectation:
    """Make an expectation of a condition and what is said where it does not hold."""
    return Expectation(text, lambda record: None if holds(record) else says, of_raising)


def note(
    name: str, value: object, text: str, says: str, *, of_raising: bool = False
) -> Expectation:
    """Ask for a value among the notes; a note that is not there passes."""
    return expected(
        text,
        lambda r: r.notes.get(name, value) == value,
        says,
        of_raising=of_raising,
    )


def _accepted(record: Record) -> str | None:
    return None if record.raised is None else f"raises {raising(record)}"


accepted = Expectation("it is accepted", _accepted)
survived = Expectation("the process does not end", lambda record: None, True)


def refused(*kinds: type[BaseException]) -> Expectation:
    """Ask for an exception, of one of these classes if any are named."""
    names = [kind.__name__ for kind in kinds]

    def wrong(record: Record) -> str | None:
        if record.raised is None:
            return "raises nothing"
        if names and not set(names) & set(record.raised.bases):
            return f"raises {raising(record)}"
        return None

    return Expectation(f"{' or '.join(names) or 'an exception'} is raised", wrong, True)


def freed(notes: Mapping[str, Any]) -> bool:
    """Return whether a target goes on to use what it has deleted."""
    return bool(notes.get("shares") and any(notes.get("deleted while alive", ())))


def _deleted_once(record: Record) -> str | None:
    if freed(record.notes):
        return "calls the deleter while its tensor shares the memory"
    for count in record.notes.get("deleted", []):
        if count != 1:
            return f"the deleter was called {count} times"
    return None


deleted_once = Expectation("each deleter is called once", _deleted_once)
deleted_anyway = Expectation("each deleter is called once", _deleted_once, True)
"""Also that of a tensor that the target refuses."""


def _written(record: Record) -> str | None:
    return WRITES if record.notes.get("writes") else None


unwritten = Expectation("the producer's memory is as it was", _written)


def _equal(record: Record) -> str | None:
    if said := _written(record):
        return said
    if unreadable := record.notes.get("cannot be read"):
        return f"is accepted and cannot be read: {unreadable}"
    if record.shown is None or record.shown.equal:
        return None
    shown = record.shown
    return f"shows {shown.values}, of shape {shown.shape} and dtype {shown.dtype}"


equal = Expectation("its elements are those of the producer", _equal, of_elements=True)

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


def deleted(times: int) -> Expectation:
    """Ask how often the deleter was called, in all."""

    def wrong(record: Record) -> str | None:
        counts = record.notes.get("deleted", [])
        if isinstance(counts, int):
            counts = [counts]
        if all(count == times for count in counts):
            return None
        return f"the deleter was called {counts[0]} times"

    return Expectation(f"the deleter is called {times} times", wrong)


def _held_by_view(record: Record) -> str | None:
    if record.notes.get("view shares") and any(record.notes["deleted under a view"]):
        return "calls the deleter while a view shares the memory"
    return None


held_by_view = Expectation("a view holds the memory", _held_by_view)


def _references(record: Record) -> str | None:
    kept = record.notes.get("references kept", 0)
    if kept < 0:
        return "gives up a reference that it does not own"
    return "keeps references" if kept else None


no_references = Expectation("no reference stays", _references)

shares = note("shares", True, "the elements are shared", "copies the elements")
used = expected(
    "the capsule is renamed to used_..., or its elements are copied",
    lambda r: r.notes.get("used", True) or r.notes.get("shares") is False,
    "leaves the name",
)


def _asks_newest(record: Record) -> str | None:
    calls = [call for call in record.asked if call.method == "__dlpack__"]
    if not calls or (calls[0].keywords.get("max_version") or [0])[0] >= 1:
        return None
    return f"first calls __dlpack__ with {calls[0].keywords}"


asks_newest = Expectation("the first call passes max_version", _asks_newest, True)


def _no_stream(record: Record) -> str | None:
    for call in record.asked:
        if call.keywords.get("stream") is not None:
            return f"passes stream={call.keywords['stream']}"
    return None


no_stream = Expectation("stream is None or left out", _no_stream, True)


def asked_once(method: str) -> Expectation:
    """Ask that the target calls a method no second time."""

    def wrong(record: Record) -> str | None:
        calls = sum(call.method == method for call in record.asked)
        return None if calls < 2 else f"calls {method} {calls} times"

    return Expectation(f"{method} is called once", wrong, True)


unchanged = expected(
    "the producer's exception passes unchanged",
    lambda r: not r.asked or r.notes.get("same error"),
    "raises another exception than the producer's",
    of_raising=True,
)


def asked_of(method: str) -> Expectation:
    """Ask that the target called a method."""
    return expected(
        f"{method} is called",
        lambda r: any(call.method == method for call in r.asked),
        f"does not call {method}",
        of_raising=True,
    )


def _immutable(record: Record) -> str | None:
    writable = None if record.shown is None else record.shown.writable
    if writable:
        return "what is imported says that it may be written"
    if writable is False and record.notes.get("affects"):
        return "what is imported says that it is read-only, and is written to"
    return None


immutable = Expectation("what is imported is read-only", _immutable)


def _said(text: str, writable: bool | None) -> Expectation:
    """Ask what the target says of a tensor that it shows."""
    return expected(
        text, lambda r: r.shown is not None and r.shown.writable is writable, ""
    )


says_nothing = _said("the target cannot say whether a tensor may be written", None)
writable = _said("it is writable", True)
protected = _said("it is read-only", False)
exports_read_only = expected(
    "a further export says READ_ONLY",
    lambda r: r.notes.get("exported") is None or r.notes["exported"] & 1,
    "a further export says that it may be written",
)
plain_devices = expected(
    "dl_device is a pair of plain integers",
    lambda r: all(
        (place := call.keywords.get("dl_device")) is None
        or (isinstance(place, list) and all(isinstance(part, int) for part in place))
        for call in r.asked
    ),
    "dl_device is something else",
    of_raising=True,
)
