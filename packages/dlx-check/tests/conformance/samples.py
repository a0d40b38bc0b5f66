"""Reports to show: of real runs, and with what a hostile target may put into one."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

from dlx_check import Header, Report, Result, run

__all__ = ["changed", "dlx", "numpy", "spoken", "strict"]

_CLOSED = ("result", "confirmed", "check")


@cache
def numpy() -> Report:
    """Return the report of NumPy: it deviates, and is not testable everywhere."""
    return run("numpy")


@cache
def dlx() -> Report:
    """Return the report of dlx: whatever is testable is met."""
    return run("dlx")


@cache
def strict() -> Report:
    """Return the report of a second target."""
    return run("array_api_strict")


def changed(report: Report, check: str, /, **values: Any) -> Report:
    """Return a report in which one result is otherwise."""
    results = tuple(
        replace(each, **values) if each.check == check else each
        for each in report.results
    )
    assert results != report.results
    return replace(report, results=results)


def spoken(report: Report, text: str) -> Report:
    """Return a report that says `text` wherever a report has words.

    That includes levels, so nothing of it fails a run.
    """
    header: dict[str, Any] = dict.fromkeys(_words(Header), text)
    words: dict[str, Any] = dict.fromkeys(_words(Result), text)
    results = tuple(replace(each, **words) for each in report.results)
    return replace(report, header=replace(report.header, **header), results=results)


def _words(kind: type[Header] | type[Result]) -> list[str]:
    names = [field.name for field in fields(kind) if str(field.type) == "str"]
    return [name for name in names if name not in (*_CLOSED, "format")]
