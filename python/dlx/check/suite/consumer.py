"""Rows for what a library does with tensors that it imports."""

from __future__ import annotations

from dlx.check.expect import (
    accepted,
    all_of,
    clean,
    either,
    elsewhere,
    equal,
    refused,
    unaffected,
)
from dlx.check.experiments import Import
from dlx.check.probe import Tensor
from dlx.check.suite.row import MUST, Check

__all__ = ["CONSUMER"]

COPY = (("copy", True),)

CONSUMER = (
    Check(
        "consumer.deleter.once",
        "R7 R8",
        MUST,
        Import(),
        all_of(accepted, equal, clean),
        effect="leak",
    ),
    Check(
        "consumer.deleter.null",
        "R9",
        MUST,
        Import(Tensor(null="deleter")),
        all_of(accepted, equal),
        effect="crash",
    ),
    Check(
        "consumer.major.newer",
        "R29",
        MUST,
        Import(Tensor(version=(2, 0), generation="versioned")),
        all_of(refused(), clean),
        effect="memory freed",
    ),
    Check(
        "consumer.copy.true.aligned",
        "R59",
        MUST,
        Import(keywords=COPY),
        either(refused(), all_of(elsewhere, equal, unaffected)),
        effect="shared after copy=True",
        profile="array-api",
    ),
)
