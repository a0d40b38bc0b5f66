"""Kernels on dlx tensors, queued on the simulated driver, and its findings."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, Protocol

import dlx
import pytest

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


def settle(sim: Simulation, work: Callable[[], object]) -> None:
    """Let all work be done, and dlx find that out when it does some `work`.

    It looks at a few of those that wait each time, and may record then what it could
    not record before, so that this takes some rounds.
    """
    for _ in range(20):
        sim.advance()
        work()


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
