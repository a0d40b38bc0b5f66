"""Rows for related protocols: streams, the CUDA array interface, Arrow's devices."""

from __future__ import annotations

from dlx_check.conformance.expect import accepted, all_of, expected, note, refused
from dlx_check.conformance.interfacing import (
    ArrowDevice,
    CudaInterface,
    OwnInterface,
    OwnStream,
    TakesStream,
)
from dlx_check.conformance.simulating import Joined, Taken
from dlx_check.conformance.suite.row import MUST, SHOULD, Check
from dlx_check.conformance.suite.streams import ordered, passes, streams

__all__ = ["RELATED"]

_told = expected(
    "__cuda_stream__() is (0, handle), of integers",
    lambda r: r.notes.get("kinds") == ["int", "int"] and r.notes.get("version") == 0,
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
        needs="consumer.device.cuda",
    ),
    *(
        Check(
            f"related.stream.{name}",
            "R154",
            MUST,
            TakesStream(told),
            all_of(refused(), _asked_none),
            "wrong numbers",
            needs="consumer.device.cuda",
        )
        for name, told in (("version", (1, 1)), ("text", (0, "1")))
    ),
    Check(
        "related.cuda-interface.cpu",
        "R152",
        SHOULD,
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
        CudaInterface((("stream", None), ("mask", None))),
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
        expected(
            "it exports an array of the CPU, without an event",
            lambda r: r.notes.get("device") == 1 and not r.notes["event"],
            "exports something else",
        ),
        "crash",
    ),
    Check(
        "related.arrow.reserved",
        "R153",
        MUST,
        ArrowDevice(),
        note("reserved", False, "reserved is zeroed", "reserved is not zeroed"),
        "metadata",
    ),
    Check(
        "related.simulated.cuda-interface.export",
        "R149 R152",
        MUST,
        Joined(),
        all_of(
            note("version", 3, "the version is 3", "another version"),
            note("zero", False, "stream is not 0", "names stream 0"),
            ordered,
        ),
        "wrong numbers",
    ),
    Check(
        "related.simulated.cuda-interface.import",
        "R148",
        MUST,
        Taken(interface=True),
        ordered,
        "wrong numbers",
    ),
    Check(
        "related.simulated.cuda-interface.back",
        "R150",
        MUST,
        Taken(interface=True, writes_back=True),
        ordered,
        "wrong numbers",
    ),
    Check(
        "related.simulated.cuda-interface.held",
        "R151",
        MUST,
        Taken(interface=True, own=True),
        note("holds", True, "it holds the stream", "lets go of the stream"),
        "memory freed",
    ),
)
"""All of them."""
