"""Kernels on dlx tensors, queued on the simulated driver, and its findings."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, Protocol

import dlx
import pytest
from dlx._core import deferred

from support.concurrent_threads import in_thread
from support.simulated_driver import Simulation, simulation
from support.simulated_objects import Stream

P = ParamSpec("P")


class Named(Protocol):
    """An object with a stream handle: `dlx.Stream`, or a simulated stream."""

    @property
    def handle(self) -> int:
        """Return the driver's handle."""


def read(stream: Named | None, tensor: dlx.Tensor) -> None:
    """Queue a kernel that reads all elements."""
    _launch(stream, tensor, write=False)


def write(stream: Named | None, tensor: dlx.Tensor) -> None:
    """Queue a kernel that writes all elements."""
    _launch(stream, tensor, write=True)


def _launch(stream: Named | None, tensor: dlx.Tensor, *, write: bool) -> None:
    assert stream is not None
    address, nbytes = tensor.data_ptr, tensor.nbytes
    simulation().call("sim_launch", stream.handle, int(write), address, nbytes)


@contextmanager
def violation(sim: Simulation, match: str) -> Iterator[None]:
    """Expect a violation of the driver's rules, then start afresh."""
    yield
    assert any(match in found.what for found in sim.violations), sim.violations
    sim.start()


@contextmanager
def refused(*streams: Stream, match: str) -> Iterator[None]:
    """Expect a `BufferError` that leaves the captures of these streams intact."""
    before = [stream.capture_status() for stream in streams]
    with pytest.raises(BufferError, match=match):
        yield
    assert [stream.capture_status() for stream in streams] == before


def ordered(sim: Simulation) -> list[str]:
    """Return what dlx called to order streams."""
    calls = {"cuEventRecord", "cuStreamWaitEvent"}
    return [name for name in sim.called() if name in calls]


def alone(test: Callable[P, None]) -> Callable[P, None]:
    """Run a test in a new thread, of which dlx has met no other library.

    dlx's current stream is that of the library that a thread's tensors come from, if
    that is one.
    """

    @wraps(test)
    def run(*arguments: P.args, **fixtures: P.kwargs) -> None:
        def body() -> None:
            simulation().use_device(0)
            test(*arguments, **fixtures)

        in_thread(body)

    return run


LONGEST_S = 20
"""Seconds that a test waits for dlx's thread that releases memory."""


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what dlx's thread does."""
    end = time.monotonic() + LONGEST_S
    while not is_so():
        assert time.monotonic() < end, f"{deferred()} tensors still wait"
        time.sleep(0.0005)


def settle(sim: Simulation) -> None:
    """Let all work be done, and wait until dlx has released what waited for that."""

    def is_settled() -> bool:
        sim.advance()
        # It frees memory of dlx's own that could not be freed before.
        dlx.empty(1, "int8", device="cuda:0")
        return deferred() == 0

    until(is_settled)
    # Libraries may have recorded events at the release.
    sim.advance()


class OwnStream:
    """A library's stream object: the stream is destroyed with it."""

    def __init__(self, stream: Stream) -> None:
        """Own a stream."""
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version and handle (R154)."""
        return (0, self.stream.handle)

    def __del__(self) -> None:
        """Destroy the stream, as libraries do."""
        self.stream.destroy()


@contextmanager
def held_elsewhere(
    begin: Callable[[], None], end: Callable[[], None]
) -> Iterator[None]:
    """Call `begin` in another thread, and `end` there after the block."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(begin).result()
        try:
            yield
        finally:
            ended = pool.submit(end)
        ended.result()


@contextmanager
def unraisable(kind: type[BaseException], match: str) -> Iterator[None]:
    """Expect one report to `sys.unraisablehook`."""
    found: list[BaseException | None] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda report: found.append(report.exc_value)
    try:
        yield
    finally:
        sys.unraisablehook = before
    [error] = found
    assert isinstance(error, kind)
    assert re.search(match, str(error))
