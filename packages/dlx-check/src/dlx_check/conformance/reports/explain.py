"""What a check does, said without a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from dlx_check.conformance.records import Asked, Record, Shown, Struct
from dlx_check.conformance.repro import programs
from dlx_check.conformance.requirements import requirements
from dlx_check.conformance.results import Report
from dlx_check.conformance.structs import UNVERSIONED, VERSIONED
from dlx_check.conformance.suite.row import Check
from dlx_check.conformance.target import Target

__all__ = ["explain", "program", "seen"]


def explain(check: Check, targets: Iterable[Target]) -> Iterator[str]:
    """Write requirements, stimulus and expectation, and a program for each target."""
    yield f"{check.id} ({check.level}, {check.stimulus} stimulus, since {check.since})"
    yield f"expected: {check.expects.text}"
    yield f"effect of a deviation: {check.effect}"
    for name in check.requirements.split():
        found = requirements()[name]
        derived = ", derived" if found.derived else ""
        yield f"{found.source}{derived}: {found.statement} ({name})"
    if check.needs:
        yield f"rests on: {check.needs}"
    yield f"does: {_short(check.experiment)}"
    for target in targets:
        text, judges = program(check, target)
        if not text:
            yield f"no short program does this to {target.name}"
            continue
        end = "raises AssertionError where it sees a deviation"
        end = end if judges else "judges nothing"
        yield f"for {target.name}, a program that {end}:"
        yield from (f"    {line}" for line in text.splitlines())


def _short(value: Any) -> str:
    """Return the `repr` of an experiment without what has its default."""
    if not is_dataclass(value):
        return repr(value)
    given = (
        f"{each.name}={_short(getattr(value, each.name))}"
        for each in fields(value)
        if getattr(value, each.name) != each.default
    )
    return f"{type(value).__name__}({', '.join(given)})"


def program(check: Check, target: Target) -> tuple[str, bool]:
    """Return a program that does what a check does, and whether it judges.

    It is the reproduction of a deviation that is supposed here. The text is empty if
    there is none.
    """
    for record in _supposed(check):
        try:
            wrong = check.expects.wrong(record)
        except (KeyError, AttributeError):
            # It asks for what only another experiment sees.
            continue
        # What may be refused or done otherwise is no deviation if it is not refused.
        if wrong is None or (
            wrong == "raises nothing" and " or " in check.expects.text
        ):
            continue
        for each in programs(check, target.spelled, "deviates", wrong, record):
            return each.text, True
    for each in programs(check, target.spelled, "crashes", "SIGSEGV", Record()):
        return each.text, False
    return "", False


def _supposed(check: Check) -> Iterator[Record]:
    """Give what a target may be seen to do, the commonest deviations first."""
    old = getattr(getattr(check.experiment, "tensor", None), "generation", "")
    name = UNVERSIONED if old == "unversioned" else VERSIONED
    struct = Struct(
        name=name,
        version=(1, 3),
        flags=0,
        device=(1, 0),
        dtype=(2, 32, 1),
        ndim=2,
        shape=(2, 3),
        strides=(3, 1),
        byte_offset=0,
        null=(),
        values="",
        equal=True,
    )
    plain = Record(sent=(name,), notes={"name": name})
    yield plain
    yield replace(plain, notes={"name": name, "shares": True})
    yield replace(plain, shown=Shown((6,), "float32", "[]", False, True))
    yield replace(plain, asked=(Asked("__dlpack__", {}),))
    yield replace(plain, notes={"name": UNVERSIONED})
    for noted in ({"leaks": True}, {"writes": True}, {"kept": False}):
        yield replace(plain, notes={"name": name, **noted})
    yield replace(plain, struct=struct)
    yield replace(plain, struct=replace(struct, equal=False))


def seen(report: Report, check: str) -> Iterator[str]:
    """Write what a report has of a check."""
    head = report.header
    for each in report.results:
        if each.check != check:
            continue
        text = f": {each.text}" if each.text else ""
        confirmed = f" ({each.confirmed})" if each.confirmed else ""
        yield f"{head.target} {head.version}: {each.result}{confirmed}{text}"
        yield from (f"    {line}" for line in each.reproduction.splitlines())
        return
    yield f"{head.target} {head.version}: not run"
