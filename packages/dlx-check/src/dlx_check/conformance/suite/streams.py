"""Rows for the streams that a library names, and for the order that it keeps.

`streams.asked.*` needs no device: a probe says that it is on one, records what it is
asked for, and refuses. Who starts a device before asking is untestable there.
`streams.simulated.*` needs a simulated driver, and a library that takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlx_check.conformance.calling import Stream
from dlx_check.conformance.expect import (
    Expectation,
    accepted,
    all_of,
    either,
    expected,
    note,
    refused,
)
from dlx_check.conformance.experiments import Import
from dlx_check.conformance.probe import Tensor
from dlx_check.conformance.records import Record
from dlx_check.conformance.simulating import Ordered, TableOrder, TableQuiet, Taken
from dlx_check.conformance.suite.row import (
    CONFLICT,
    MUST,
    SHOULD,
    Check,
    of_from_dlpack,
    of_table,
)
from dlx_check.conformance.suite.table import fails, noted, succeeds

__all__ = ["STREAMS"]

HANDLE = 2
"""CUDA's per-thread default stream, which is one wherever a driver is found."""
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

_ASKED = (
    Check(
        "streams.asked.cuda",
        "R85 R84",
        MUST,
        Import(on(2)),
        _cuda,
        "wrong numbers",
        facts=(*_FACTS, (passes("", lambda s: s == 1), "names the legacy stream, 1")),
        needs="consumer.device.cuda",
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
    of_from_dlpack(
        "streams.asked.to-cpu",
        "R71 R85",
        MUST,
        Import(on(2), TO_CPU),
        _none,
        "class of error",
        needs="consumer.device.cuda",
    ),
    Check(
        "streams.asked.given",
        "R83",
        MUST,
        Import(on(2), on=HANDLE),
        passes("stream is the one that it will use", lambda s: s == HANDLE),
        "wrong numbers",
        needs="consumer.device.cuda",
    ),
    of_table(
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
    ),
)

ordered = note("races", 0, "each use is ordered", "a use is not ordered")
_optional = either(refused(), ordered)
"""Streams other than None need not be supported."""
_sound = note(
    "violations", [], "nothing is used too late", "uses what is no longer there"
)
_no_wait = note("waits", [], "nobody waits", "a stream or the host waits")
_quiet = all_of(note("code", 0, "it succeeds", "fails"), _no_wait)
_not_passed = expected(
    "a stream of another device is not passed on",
    lambda r: not r.notes.get("passed"),
    "passes a stream of another device",
    of_raising=True,
)

_COPY: tuple[tuple[str, Any], ...] = (("dl_device", (2, 0)), ("copy", True))
_TO_CPU: tuple[tuple[str, Any], ...] = (("dl_device", (1, 0)),)
_NUMBERS, _CLASS, _WAITS = "wrong numbers", "class of error", "metadata"
_COPIES = either(refused(BufferError), ordered)

_EXPORTS = {
    "handle": ("R80 R73", MUST, Ordered(), _optional, _NUMBERS),
    "none": ("R72", MUST, Ordered(None, 1), all_of(accepted, ordered), _NUMBERS),
    "legacy": ("R73", MUST, Ordered(1), _optional, _NUMBERS),
    "per-thread": ("R73", MUST, Ordered(2), _optional, _NUMBERS),
    "zero": ("R74", MUST, Ordered(0), refused(), _CLASS),
    "negative": ("R77", MUST, Ordered(-2), refused(), _CLASS),
    "unsynchronized": ("R76", MUST, Ordered(-1), all_of(accepted, _no_wait), _WAITS),
    "same": ("R81", SHOULD, Ordered("same"), either(refused(), _no_wait), _WAITS),
    "destroyed": (
        "R82",
        MUST,
        Ordered(ends=True),
        either(refused(), _sound),
        "memory freed",
    ),
    "copy": ("R50", MUST, Ordered(keywords=_COPY), _COPIES, _NUMBERS),
    "to-cpu": ("R55", MUST, Ordered(None, keywords=_TO_CPU), _COPIES, _NUMBERS),
    "to-cpu.stream": ("R55 R71", MUST, Ordered(1, keywords=_TO_CPU), refused(), _CLASS),
    "rocm.none": ("R75", MUST, Ordered(None, 0, 10), ordered, _NUMBERS),
    "rocm.zero": ("R75", MUST, Ordered(0, 0, 10), _optional, _NUMBERS),
    "rocm.handle": ("R75", MUST, Ordered(device=10), _optional, _NUMBERS),
    "rocm.legacy": ("R75", MUST, Ordered(1, 0, 10), refused(), _CLASS),
    "rocm.per-thread": ("R75", MUST, Ordered(2, 0, 10), refused(), _CLASS),
}

_SIMULATED = (
    *(
        Check(f"streams.simulated.export.{name}", *row)
        for name, row in _EXPORTS.items()
    ),
    Check(
        "streams.simulated.import.protocol", "R83 R80", MUST, Taken(), ordered, _NUMBERS
    ),
    Check(
        "streams.simulated.import.table",
        "R143",
        SHOULD,
        Taken("plain"),
        ordered,
        _NUMBERS,
    ),
    Check(
        "streams.simulated.import.other-device",
        "R86",
        SHOULD,
        Taken(other_device=True),
        _not_passed,
        _CLASS,
    ),
    of_table(
        "streams.simulated.table.no-wait",
        "R126",
        MUST,
        TableOrder(),
        _quiet,
        "metadata",
    ),
    *(
        of_table(
            f"streams.simulated.table.no-wait.{name}",
            "R126",
            MUST,
            TableQuiet(entry),
            _quiet,
            "metadata",
        )
        for name, entry in (
            ("borrow", "dltensor_from_py_object_no_sync"),
            ("to", "managed_tensor_to_py_object_no_sync"),
        )
    ),
    of_table(
        "streams.simulated.table.ready-elsewhere",
        "R126 R140",
        CONFLICT,
        TableOrder(ready=False),
        expected(
            "the host does not wait",
            lambda r: not any("Synchronize" in name for name in r.notes["waits"]),
            "has the host wait",
        ),
        "metadata",
        facts=(
            (_no_wait, "leaves the order to its caller"),
            (
                expected("", lambda r: r.notes["waits"], ""),
                "has the stream that it names wait",
            ),
        ),
    ),
    of_table(
        "streams.simulated.table.current",
        "R140",
        MUST,
        TableOrder(),
        note(
            "named",
            True,
            "it names the stream that the library works on",
            "names another stream",
        ),
        _NUMBERS,
    ),
)

STREAMS = (*_ASKED, *_SIMULATED)
"""All of them."""
