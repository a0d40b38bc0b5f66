"""What other threads do to captures of each mode, as raw calls (`claims.py`)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int

from gpu.claimed import (
    BLOCKING,
    CLAIMS,
    GLOBAL,
    LEGACY,
    RELAXED,
    THREAD_LOCAL,
    Codes,
    begin,
    claim,
    elsewhere,
    end,
)
from gpu.driver import NON_BLOCKING, Driver

MODES = {"global": GLOBAL, "thread-local": THREAD_LOCAL, "relaxed": RELAXED}

Call = Callable[[Driver, int, int], int]


def beside(name: str, call: Call, flags: int = NON_BLOCKING) -> None:
    """Claim what a call answers in another thread, during captures of each mode.

    It is given a stream and an event that have nothing to do with the captures. The
    second round is of a thread that has exchanged its mode for the relaxed one.
    """

    def claimed(cuda: Driver) -> Codes:
        codes = Codes()

        def attempt(key: str, exchanged: int) -> None:
            cuda.call("cuThreadExchangeStreamCaptureMode", byref(c_int(exchanged)))
            codes[key] = call(cuda, idle, event)

        for mode_name, mode in MODES.items():
            for exchanged in (GLOBAL, RELAXED):
                idle, event = cuda.new_stream(), cuda.new_event()
                cuda.call("cuEventRecord", event, idle)
                cuda.call("cuStreamSynchronize", idle)
                key = mode_name + " from relaxed" * (exchanged == RELAXED)
                stream = begin(cuda, mode, flags)
                elsewhere(cuda, lambda: attempt(key, exchanged))  # noqa: B023
                codes[f"{key}, end"] = end(cuda, stream)
        return codes

    CLAIMS[f"{name}_beside_captures"] = claimed


def _stream(name: str) -> Call:
    return lambda cuda, stream, _: cuda.answer(name, stream)


def _event(name: str) -> Call:
    return lambda cuda, _, event: cuda.answer(name, event)


beside("cuStreamQuery", _stream("cuStreamQuery"))
beside("cuStreamSynchronize", _stream("cuStreamSynchronize"))
beside("cuEventQuery", _event("cuEventQuery"))
beside("cuEventSynchronize", _event("cuEventSynchronize"))
beside("cuCtxSynchronize", lambda cuda, *_: cuda.answer("cuCtxSynchronize"))
beside(
    "cuEventRecord", lambda cuda, *handles: cuda.answer("cuEventRecord", *handles[::-1])
)
beside(
    "cuStreamWaitEvent",
    lambda cuda, stream, event: cuda.answer("cuStreamWaitEvent", stream, event, 0),
)
beside(
    "legacy_cuEventRecord",
    lambda cuda, _, event: cuda.answer("cuEventRecord", event, LEGACY),
    BLOCKING,
)
beside(
    "legacy_cuStreamSynchronize",
    lambda cuda, *_: cuda.answer("cuStreamSynchronize", LEGACY),
    BLOCKING,
)


@claim
def the_legacy_stream_is_not_drawn_into_a_capture(cuda: Driver) -> Codes:
    """906, and the capture has failed, also of a non-blocking stream."""
    codes = Codes()
    for name, mode in MODES.items():
        event, stream = cuda.new_event(), begin(cuda, mode)
        cuda.call("cuEventRecord", event, stream)
        codes[name] = cuda.answer("cuStreamWaitEvent", LEGACY, event, 0)
        codes[f"{name}, end"] = end(cuda, stream)
    return codes
