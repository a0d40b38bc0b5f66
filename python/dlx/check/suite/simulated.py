"""Rows for the order of streams, on a simulated driver.

Without one, or for a library that takes no other driver, they are untestable.
"""

from __future__ import annotations

from typing import Any

from dlx.check.expect import accepted, all_of, either, expected, note, refused
from dlx.check.simulating import Joined, Ordered, TableOrder, TableQuiet, Taken
from dlx.check.suite.row import CONFLICT, MUST, SHOULD, Check

__all__ = ["SIMULATED"]

_ordered = note("races", 0, "each use is ordered", "a use is not ordered")
_optional = either(refused(), _ordered)
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
    _row("none", "R72", Ordered(None, 1), all_of(accepted, _ordered)),
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
        either(refused(BufferError), _ordered),
    ),
    _row(
        "to-cpu",
        "R55",
        Ordered(None, keywords=_TO_CPU),
        either(refused(BufferError), _ordered),
    ),
    _row("to-cpu.stream", "R55 R71", Ordered(1, keywords=_TO_CPU), refused()),
    *(
        _row(f"rocm.{name}", "R75", Ordered(stream, reader, 10), expects)
        for name, stream, reader, expects in (
            ("none", None, 0, all_of(accepted, _ordered)),
            ("zero", 0, 0, _optional),
            ("handle", "handle", None, _optional),
            ("legacy", 1, 0, refused()),
            ("per-thread", 2, 0, refused()),
        )
    ),
)

SIMULATED = (
    *_EXPORTS,
    Check(
        "streams.simulated.import.protocol",
        "R83 R80",
        MUST,
        Taken(),
        all_of(accepted, _ordered),
        _NUMBERS,
    ),
    Check(
        "streams.simulated.import.table",
        "R143",
        SHOULD,
        Taken("plain"),
        all_of(accepted, _ordered),
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
    Check(
        "related.simulated.cuda-interface.export",
        "R149 R152",
        MUST,
        Joined(),
        all_of(
            accepted,
            note("version", 3, "the version is 3", "another version"),
            note("zero", False, "stream is not 0", "names stream 0"),
            _ordered,
        ),
        _NUMBERS,
    ),
    Check(
        "related.simulated.cuda-interface.import",
        "R148",
        MUST,
        Taken(interface=True),
        all_of(accepted, _ordered),
        _NUMBERS,
    ),
    Check(
        "related.simulated.cuda-interface.back",
        "R150",
        MUST,
        Taken(interface=True, writes_back=True),
        all_of(accepted, _ordered),
        _NUMBERS,
    ),
    Check(
        "related.simulated.cuda-interface.held",
        "R151",
        MUST,
        Taken(interface=True, own=True),
        all_of(
            accepted,
            note("holds", True, "it holds the stream", "lets go of the stream"),
        ),
        "memory freed",
    ),
)
"""All of them."""
