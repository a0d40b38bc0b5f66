"""The rows of the suite: one declarative table for each role.

A row never changes its meaning under its name: a stricter one gets another name.
"""

from __future__ import annotations

from dlx_check.conformance.suite.absent import NOT_CHECKABLE
from dlx_check.conformance.suite.consumer import CONSUMER
from dlx_check.conformance.suite.producer import PRODUCER
from dlx_check.conformance.suite.rare import RARE
from dlx_check.conformance.suite.related import RELATED
from dlx_check.conformance.suite.row import Check, NotCheckable
from dlx_check.conformance.suite.streams import STREAMS
from dlx_check.conformance.suite.table import TABLE

__all__ = [
    "CHECKS",
    "NOT_CHECKABLE",
    "SUITE",
    "Check",
    "NotCheckable",
]

SUITE = "1.3.0"
"""The DLPack version, and a count of the suite's own."""

CHECKS: tuple[Check, ...] = (
    *PRODUCER,
    *CONSUMER,
    *TABLE,
    *RARE,
    *STREAMS,
    *RELATED,
)
