"""Rows for the streams that a library names, and for the order that it keeps.

`streams.asked.*` needs no device: a probe says that it is on one, records what it is
asked for, and refuses. Who starts a device before asking is untestable there.
`streams.simulated.*` needs a simulated driver, and a library that takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlx.check.calling import Stream
from dlx.check.expect import (
    Expectation,
    accepted,
    all_of,
    either,
    expected,
    note,
    refused,
)
from dlx.check.experiments import Import
from dlx.check.probe import Tensor
from dlx.check.records import Record
from dlx.check.simulating import Ordered, TableOrder, TableQuiet, Taken
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

_ASKED = (
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
_EXPORT = "streams.simulated.export"


def _row(name: str, names: str, *what: Any, level: str = MUST) -> Check:
    experiment, expects = what
    return Check(f"{_EXPORT}.{name}", names, level, experiment, expects, _NUMBERS)


_NUMBERS = "wrong numbers"
_EXPORTS = (
    _row("handle", "R80 R73", Ordered(), _optional),
    _row("none", "R72", Ordered(None, 1), all_of(accepted, ordered)),
    _row("legacy", "R73", Ordered(1), _optional),
    _row("per-thread", "R73", Ordered(2), _optional),
    _row("zero", "R74", Ordered(0), refused()),
    _row("negative", "R77", Ordered(-2), refused()),
    _row("unsynchronized", "R76", Ordered(-1), all_of(accepted, _no_wait)),
    _row("same", "R81", Ordered("same"), either(refused(), _no_wait), level=SHOULD),
    _row("destroyed", "R82", Ordered(ends=True), either(refused(), _sound)),
    _row(
        "copy",
        "R50",
        Ordered(keywords=_COPY),
        either(refused(BufferError), ordered),
    ),
    _row(
        "to-cpu",
        "R55",
        Ordered(None, keywords=_TO_CPU),
        either(refused(BufferError), ordered),
    ),
    _row("to-cpu.stream", "R55 R71", Ordered(1, keywords=_TO_CPU), refused()),
    *(
        _row(f"rocm.{name}", "R75", Ordered(stream, reader, 10), expects)
        for name, stream, reader, expects in (
            ("none", None, 0, all_of(accepted, ordered)),
            ("zero", 0, 0, _optional),
            ("handle", "handle", None, _optional),
            ("legacy", 1, 0, refused()),
            ("per-thread", 2, 0, refused()),
        )
    ),
)

_SIMULATED = (
    *_EXPORTS,
    Check(
        "streams.simulated.import.protocol",
        "R83 R80",
        MUST,
        Taken(),
        all_of(accepted, ordered),
        _NUMBERS,
    ),
    Check(
        "streams.simulated.import.table",
        "R143",
        SHOULD,
        Taken("plain"),
        all_of(accepted, ordered),
        _NUMBERS,
    ),
    Check(
        "streams.simulated.import.other-device",
        "R86",
        MUST,
        Taken(other_device=True),
        _not_passed,
        _NUMBERS,
    ),
    Check(
        "streams.simulated.table.no-wait",
        "R126",
        MUST,
        TableOrder(),
        _quiet,
        "metadata",
        profile="table",
    ),
    *(
        Check(
            f"streams.simulated.table.no-wait.{name}",
            "R126",
            MUST,
            TableQuiet(entry),
            _quiet,
            "metadata",
            profile="table",
        )
        for name, entry in (
            ("borrow", "dltensor_from_py_object_no_sync"),
            ("to", "managed_tensor_to_py_object_no_sync"),
        )
    ),
    Check(
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
        profile="table",
    ),
    Check(
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
        profile="table",
    ),
)

STREAMS = (*_ASKED, *_SIMULATED)
"""All of them."""
