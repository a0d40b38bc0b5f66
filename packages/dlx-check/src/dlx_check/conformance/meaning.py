"""What a deviation means: its effect on a user, and the requirement that explains it.

A row tells of the deviation that it is made for; another one may be seen in its place,
as a leak where elements are compared.
"""

from __future__ import annotations

from typing import Any

from dlx_check.conformance.expect import freed, unwritten
from dlx_check.conformance.exporting import Export
from dlx_check.conformance.result import STRIDES, WRITES
from dlx_check.conformance.suite.row import EFFECTS, Check

__all__ = ["effect", "explained"]

_EFFECTS = (
    (STRIDES, "wrong numbers"),
    (WRITES, "wrong numbers"),
    ("exports other elements", "wrong numbers"),
    ("shows ", "wrong numbers"),
    ("is accepted and cannot be read", "refusal"),
    ("the deleter was called 0 times", "leak"),
    ("the deleter was called", "memory freed"),
    ("calls the deleter while", "memory freed"),
    ("keeps references", "leak"),
    ("gives up a reference", "memory freed"),
)
"""What it means for a user, by how the sentence begins; else it is as the row says."""


def effect(check: Check, result: str, text: str, record: dict[str, Any]) -> str:
    """Return what a deviation does: an exception is never a wrong number."""
    if result in ("crashes", "hangs"):
        return "crash"
    if result != "deviates":
        return check.effect
    if text.startswith("shows ") and freed(record.get("notes", {})):
        return "memory freed"
    for begins, meant in _EFFECTS:
        if text.startswith(begins):
            return meant
    if explained(check, result, text, record)[0] == "R20":
        return "refusal"
    if record.get("raised"):
        milder = "class of error" if check.expects.of_raising else "refusal"
        return max(milder, check.effect, key=EFFECTS.index)
    return check.effect


def explained(
    check: Check, result: str, text: str, record: dict[str, Any]
) -> tuple[str, str]:
    """Return the requirements that are missed, and what they ask for.

    That is what explains a deviation, or else the row's own.
    """
    own = check.requirements, check.expects.text
    if result != "deviates":
        return own
    if text.startswith(STRIDES):
        return "R92", "strides count elements"
    if text == WRITES:
        return "R155", unwritten.text
    if isinstance(check.experiment, Export) and check.experiment.keywords:
        # The keyword is not known, whatever its value asks for.
        raised = record.get("raised") or {}
        unknown = raised.get("type") == "TypeError" and "argument" in raised["message"]
        if unknown and text.startswith("raises TypeError"):
            return "R20", "each of the four keywords is known"
    return own
