"""Reproductions: programs of the target, NumPy and ctypes that show a deviation.

A program ends with an `AssertionError`, with the exception that the target should not
raise, or as the target ends it. A producer with one odd field is NumPy's own export
with that field overwritten, so nothing of dlx is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dlx_check.conformance.experiments import Import, Untestable
from dlx_check.conformance.exporting import Export, Kinds
from dlx_check.conformance.finalizing import Finalize
from dlx_check.conformance.interfacing import ArrowDevice
from dlx_check.conformance.leaking import Returned, spoken
from dlx_check.conformance.probe import NEWEST
from dlx_check.conformance.records import Record
from dlx_check.conformance.repro_code import NoProgram, kind_in, spelled
from dlx_check.conformance.repro_exports import (
    exporting,
    finalizing,
    reserved,
    returned,
    tabled,
)
from dlx_check.conformance.repro_imports import importing
from dlx_check.conformance.structs import UNVERSIONED, VERSIONED
from dlx_check.conformance.suite.row import Check

__all__ = ["Program", "programs"]


@dataclass(frozen=True)
class Program:
    """A program, and how it ends while the deviation is there."""

    text: str
    ending: str
    """The name of an exception or of a signal, or "hangs"."""


def programs(
    check: Check, target: dict[str, Any], result: str, text: str, record: Record
) -> Iterator[Program]:
    """Give reproductions of a deviation, the likeliest first; there may be none.

    `target` has the fields of a `Target` that are expressions. A crash leaves no record
    of which generation of capsules was asked for, so there is a program for each.
    """
    records = [record]
    if result != "deviates" and not record.sent:
        records = [replace(record, sent=(name,)) for name in (VERSIONED, UNVERSIONED)]
    for each in records:
        try:
            lines, ending = _program(check, target, result, text, each)
        except (NoProgram, KeyError, Untestable):
            continue
        yield _whole(target, lines, ending)


def _whole(target: dict[str, Any], lines: list[str], ending: str) -> Program:
    """Put what a program imports before its lines."""
    first = "import numpy as np"
    if any("ctypes" in line for line in lines):
        first = "import ctypes, numpy as np"
    imports = target["imports"].splitlines()
    head = [first, *(each for each in imports if each != "import numpy as np")]
    if target.get("setup"):
        head.append(target["setup"])
    return Program("\n".join((*head, *lines)) + "\n", ending)


def _program(
    check: Check, target: dict[str, Any], result: str, text: str, record: Record
) -> tuple[list[str], str]:
    experiment: Any = check.experiment
    ending = "AssertionError"
    if result == "hangs":
        ending = "hangs"
    elif result == "crashes":
        ending = text.split()[0]
        if not ending.startswith("SIG"):
            raise NoProgram
    elif text.startswith("raises ") and record.raised:
        ending = record.raised.type
    wanted = ending if ending == "AssertionError" else ""
    if isinstance(experiment, Import):
        return importing(experiment, target, text, record, wanted), ending
    if isinstance(experiment, Export):
        return exporting(experiment, target, text, record, wanted), ending
    if isinstance(experiment, Returned):
        return returned(experiment, target), ending
    if isinstance(experiment, Kinds):
        kinds = target["cannot_export"]
        lines = [f"x = {kinds[kind_in(kinds, text)]}"]
        keywords = spoken(target["profiles"], (("max_version", NEWEST),))
        lines.append(f"x.__dlpack__({spelled(keywords)})")
        if text.startswith("raises "):
            return lines, text.split()[1]
        if result == "crashes":
            return lines, ending
        raise NoProgram
    if isinstance(experiment, Finalize) and experiment.then == "deleter":
        return finalizing(target, record), record.notes["ended"]
    if isinstance(experiment, ArrowDevice) and record.notes.get("reserved"):
        return reserved(target), ending
    return tabled(experiment, target, text), ending
