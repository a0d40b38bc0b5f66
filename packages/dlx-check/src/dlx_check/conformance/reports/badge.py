"""A badge: the JSON that an endpoint of shields.io answers with."""

from __future__ import annotations

from typing import Any

from dlx_check.conformance.reports.order import tally
from dlx_check.conformance.result import FAILED
from dlx_check.conformance.results import Report

__all__ = ["badge"]


def badge(report: Report, known: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields that shields.io asks for.

    Green: all that is testable meets. Red: something fails the run and is not among
    `known`. Yellow is between: known deviations, and those from a SHOULD.
    """
    legal = [each for each in report.results if each.stimulus != "malformed"]
    must, should = tally(report, "must"), tally(report, "should")
    message = f"MUST {must}"
    if should.met < should.tested:
        message += f", SHOULD {should}"
    accepted = sum(each.failed and each.check in known for each in legal)
    if accepted:
        message += f", {accepted} known"
    color = "brightgreen"
    if any(each.result in FAILED for each in legal):
        color = "yellow"
    if any(each.fails_run and each.check not in known for each in legal):
        color = "red"
    found = {"schemaVersion": 1, "label": "DLPack 1.3"}
    if any(each.result == "error" for each in report.results):
        return {**found, "message": "the suite failed", "color": "red", "isError": True}
    if not must.tested:
        return {**found, "message": "nothing testable", "color": "lightgrey"}
    return {**found, "message": message, "color": color}
