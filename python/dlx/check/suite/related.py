"""Rows for related protocols: streams, the CUDA array interface, Arrow's devices."""

from __future__ import annotations

from dlx.check.expect import accepted, all_of, either, expected, refused
from dlx.check.interfacing import (
    ArrowDevice,
    CudaInterface,
    OwnInterface,
    OwnStream,
    TakesStream,
)
from dlx.check.suite.row import MUST, Check
from dlx.check.suite.streams import passes, streams

__all__ = ["RELATED"]

_told = expected(
    "__cuda_stream__() is (0, handle), of integers",
    lambda r: (
        r.notes.get("kinds") == ["int", "int"] and r.notes.get("version") == 0
    ),
    "__cuda_stream__() is something else",
)
_asked_none = expected(
    "the producer is not asked", lambda r: not streams(r), "asks the producer"
)

RELATED = (
    Check(
        "related.stream.own",
        "R154",
        MUST,
        OwnStream(),
        all_of(accepted, _told),
        "refusal",
    ),
    Check(
        "related.stream.taken",
        "R154",
        MUST,
        TakesStream((0, 1)),
        passes("the handle is passed on", lambda s: s == 1),
        "wrong numbers",
    ),
    *(
        Check(
            f"related.stream.{name}",
            "R154",
            MUST,
            TakesStream(told),
            all_of(refused(), _asked_none),
            "wrong numbers",
        )
        for name, told in (("version", (1, 1)), ("text", (0, "1")))
    ),
    Check(
        "related.cuda-interface.cpu",
        "R152",
        MUST,
        OwnInterface(),
        refused(AttributeError),
        "crash",
    ),
    Check(
        "related.cuda-interface.stream.zero",
        "R148",
        MUST,
        CudaInterface((("stream", 0),)),
        refused(),
        "wrong numbers",
    ),
    Check(
        "related.cuda-interface.stream.none",
        "R148",
        MUST,
        CudaInterface((("stream", None),)),
        accepted,
        "refusal",
    ),
    Check(
        "related.cuda-interface.mask",
        "R152",
        MUST,
        CudaInterface((("mask", "any"),)),
        refused(),
        "wrong numbers",
    ),
    Check(
        "related.cuda-interface.empty",
        "R152",
        MUST,
        CudaInterface(empty=True),
        accepted,
        "refusal",
    ),
    Check(
        "related.arrow.device",
        "R153",
        MUST,
        ArrowDevice(),
        either(
            refused(),
            expected(
                "a device array of the CPU, with reserved zeroed, and no event",
                lambda r: (
                    r.notes.get("name") == "arrow_device_array"
                    and not r.notes["reserved"]
                    and not r.notes["event"]
                    and r.notes["device"] == 1
                ),
                "exports something else",
            ),
        ),
        "crash",
    ),
)
"""All of them."""
