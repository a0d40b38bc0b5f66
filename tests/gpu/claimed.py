"""What a claim is, and the calls that several claims make (`claims.py`)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int, c_void_p
from threading import Thread

from gpu.driver import Driver

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
LEGACY, PER_THREAD = 1, 2
BLOCKING = 0

Codes = dict[str, int]
Claim = Callable[[Driver], Codes]
CLAIMS: dict[str, Claim] = {}


def claim(function: Claim) -> Claim:
    """Add a claim."""
    CLAIMS[function.__name__] = function
    return function


def begin(cuda: Driver, mode: int = GLOBAL, flags: int = 1) -> int:
    """Begin a capture on a new stream."""
    stream = cuda.new_stream(flags)
    cuda.call("cuStreamBeginCapture_v2", stream, mode)
    return stream


def end(cuda: Driver, stream: int) -> int:
    """End a capture: 0 if nothing has broken it."""
    graph = c_void_p()
    code = cuda.answer("cuStreamEndCapture", stream, byref(graph))
    if graph:
        cuda.call("cuGraphDestroy", graph)
    return code


def status(cuda: Driver, stream: int, codes: Codes, name: str) -> None:
    """Ask whether a stream captures: 0 no, 1 yes, 2 in a capture that has failed."""
    place = c_int()
    codes[name] = cuda.answer("cuStreamIsCapturing", stream, byref(place))
    if codes[name] == 0:
        codes[f"{name} status"] = place.value


def during(cuda: Driver, name: str, call: Callable[[int], int]) -> Codes:
    """Make a call while a stream captures in the global mode."""
    stream = begin(cuda)
    return {name: call(stream), "end": end(cuda, stream)}


def elsewhere(cuda: Driver, calls: Callable[[], None]) -> None:
    """Make calls in another thread, with the primary context current, to its end."""

    def work() -> None:
        cuda.use_primary_context()
        calls()

    thread = Thread(target=work)
    thread.start()
    thread.join()
