"""Rows for packed elements, foreign byte orders and the end of the interpreter."""

from __future__ import annotations

from dlx_check.conformance.expect import (
    Expectation,
    all_of,
    deleted_once,
    either,
    equal,
    refused,
)
from dlx_check.conformance.experiments import Import
from dlx_check.conformance.exporting import Export
from dlx_check.conformance.finalizing import Finalize
from dlx_check.conformance.probe import NEWEST, Tensor
from dlx_check.conformance.records import Record
from dlx_check.conformance.suite.producer import readable
from dlx_check.conformance.suite.row import MUST, SHOULD, Check

__all__ = ["RARE"]

VERSION = (("max_version", NEWEST),)


def _badly(record: Record) -> str | None:
    ended = record.notes.get("ended", "code 0")
    return None if ended == "code 0" else f"the process ends by {ended}"


_ends = Expectation("the process ends well", _badly)

_PACKED = {
    "int4": (0, 4, 1),
    "uint4": (1, 4, 1),
    "float4_e2m1fn": (17, 4, 1),
    "float6_e2m3fn": (15, 6, 1),
}

RARE = (
    *(
        Check(
            f"producer.finalized.{then}", "R14", SHOULD, Finalize(then), _ends, "crash"
        )
        for then in ("capsule", "deleter")
    ),
    Check(
        "producer.byte-order",
        "R101",
        SHOULD,
        Export(VERSION, dtype=">f4"),
        refused(),
        "wrong numbers",
        needs="producer.capsule.name",
    ),
    Check(
        "producer.packed",
        "R107",
        MUST,
        Export(VERSION, kind="packed"),
        readable,
        "wrong numbers",
    ),
    *(
        Check(
            f"consumer.packed.{name}",
            "R107",
            MUST,
            Import(Tensor((6,), dtype)),
            all_of(either(refused(), equal), deleted_once),
            "wrong numbers",
            facts=((refused(), f"imports no packed {name}"),),
            needs="consumer.capsule.dropped",
        )
        for name, dtype in _PACKED.items()
    ),
)
"""All of them."""
