"""Rows for the streams that a library names; none of them needs a device.

A probe says that it is on another device, records what it is asked for, and refuses.
Who starts a device before asking is untestable here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlx.check.calling import Stream
from dlx.check.expect import Expectation, all_of, either, expected
from dlx.check.experiments import Import
from dlx.check.probe import Tensor
from dlx.check.records import Record
from dlx.check.suite.row import CONFLICT, MUST, SHOULD, Check
from dlx.check.suite.table import fails, noted, succeeds

__all__ = ["STREAMS"]

HANDLE = 0x5EED0
"""No stream; the probe refuses before anybody could use it."""
TO_CPU = (("device", "cpu"),)


def on(device: int) -> Tensor:
    """Return a probe on another device, which refuses to export."""
    return Tensor(device=(device, 0), raises=(("__dlpack__", "BufferError"),))


def streams(record: Record) -> list[Any]:
    """Return the streams that the probe was asked for, None where there was none."""
    calls = (call for call in record.asked if call.method == "__dlpack__")
    return [call.keywords.get("stream") for call in calls]


def passes(text: str, right: Callable[[Any], object]) -> Expectation:
    """Ask something of each stream that is passed."""

    def wrong(record: Record) -> str | None:
        found = next((each for each in streams(record) if not right(each)), ...)
        return None if found is ... else f"passes stream={found!r}"

    return Expectation(text, wrong, True)


def number(value: Any, *forbidden: int) -> bool:
    """Return whether a stream is None or a number that means one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value is None or (whole and value >= -1 and value not in forbidden)


_cuda = passes("stream is None, -1, 1, 2 or a handle", lambda s: number(s, 0))
_rocm = passes("stream is None, -1, 0 or a handle", lambda s: number(s, 1, 2))
_none = passes("stream is None or left out", lambda s: s is None)
_named = expected(
    "it names a stream", lambda r: r.notes["stream"] is not None, "names nothing"
)
_FACTS = (
    (_none, "leaves the stream to the producer: the legacy default one"),
    (passes("", lambda s: s == -1), "asks for no synchronization"),
)

STREAMS = (
    Check(
        "streams.asked.cuda",
        "R85 R84",
        MUST,
        Import(on(2)),
        _cuda,
        "wrong numbers",
        facts=(*_FACTS, (passes("", lambda s: s == 1), "names the legacy stream, 1")),
    ),
    Check(
        "streams.asked.rocm",
        "R85 R84 R75",
        MUST,
        Import(on(10)),
        _rocm,
        "wrong numbers",
        facts=(*_FACTS, (passes("", lambda s: s == 0), "names the default stream, 0")),
    ),
    Check(
        "streams.asked.managed",
        "R87",
        SHOULD,
        Import(on(13)),
        _cuda,
        "wrong numbers",
        facts=(*_FACTS, (passes("", lambda s: s == 1), "names the legacy stream, 1")),
    ),
    Check(
        "streams.asked.pinned",
        "R87",
        SHOULD,
        Import(on(3)),
        passes("stream is None, -1 or left out", lambda s: s in (None, -1)),
        "refusal",
    ),
    Check(
        "streams.asked.to-cpu",
        "R71 R85",
        MUST,
        Import(on(2), TO_CPU),
        _none,
        "class of error",
        profile="from_dlpack",
    ),
    Check(
        "streams.asked.given",
        "R83",
        MUST,
        Import(on(2), on=HANDLE),
        passes("stream is the one that it will use", lambda s: s == HANDLE),
        "wrong numbers",
    ),
    Check(
        "streams.table.cuda",
        "R141 R123",
        CONFLICT,
        Stream(2),
        either(fails, all_of(succeeds, _named)),
        "crash",
        facts=(
            (fails, "names no stream without a device"),
            (noted("stream", 0, "", ""), "NULL, which means the legacy stream"),
            (noted("stream", 1, "", ""), "names the legacy stream, 1"),
            (
                expected("", lambda r: r.notes["stream"] == 3, ""),
                "names a stream of its own",
            ),
        ),
        profile="table",
    ),
)
"""All of them."""
