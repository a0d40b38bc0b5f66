"""Streams of green contexts, which are current in one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework, TableArray
from support.simulated_contexts import Context, green_context
from support.simulated_driver import Simulation
from support.simulated_kernels import read, settle, write
from support.simulated_objects import Stream


@pytest.fixture
def green(sim: Simulation) -> Context:
    """Give the context of a green context."""
    return green_context(sim)


@pytest.fixture
def held(green: Context) -> Iterator[Context]:
    """Give one that is current in another thread."""
    begun, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with green.current():
            begun.set()
            ended.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    yield green
    ended.set()
    thread.join()


def test_a_green_stream_waits_for_the_producer(
    sim: Simulation, library: Framework, array: TableArray, green: Context
) -> None:
    """R83: and the memory comes back behind it."""
    s = green.stream()
    tensor = dlx.from_dlpack(array, stream=s)
    write(s, tensor)
    del tensor
    assert sim.races == []
    assert array.deleted == 0
    settle(sim)
    assert array.deleted == 1


def test_a_producer_on_a_green_stream_is_waited_for(
    sim: Simulation, library: Framework, s: Stream, green: Context
) -> None:
    """H7: its events are of its own context."""
    p = green.stream()
    with library.stream(p):
        array = library.full((4,))
        read(s, dlx.from_dlpack(array, stream=s))
        with dlx.borrow(array, stream=s) as (tensor, stream):
            write(stream, tensor)
        array += 1
    assert sim.races == []
    assert sim.violations == []


def test_a_green_stream_is_let_go_in_another_thread(
    sim: Simulation, library: Framework, array: TableArray, green: Context
) -> None:
    """H4, H5: the green context may be current in one thread only; others wait."""
    s = green.stream()
    with green.current():
        held = [dlx.from_dlpack(array, stream=s)]
        write(s, held[0])
        in_thread(held.clear)
        assert array.deleted == 0
    settle(sim)
    assert array.deleted == 1


def test_a_green_stream_is_refused_or_ordered_while_another_thread_has_it(
    sim: Simulation, array: TableArray, held: Context
) -> None:
    """H7: whichever it is, nothing races."""
    stream = sim.keep(Stream(sim, sim.get("cuGreenCtxStreamCreate", held.green, 1, 0)))
    try:
        tensor = dlx.from_dlpack(array, stream=stream)
    except (BufferError, dlx.CudaError):
        return
    read(stream, tensor)
    assert sim.races == []
    del tensor
    assert array.deleted == 0


def test_the_current_context_stays(
    sim: Simulation, array: TableArray, green: Context
) -> None:
    """H5: dlx leaves the thread as it was."""
    s = green.stream()
    with green.current():
        dlx.from_dlpack(array, stream=s)
        assert sim.get("cuCtxGetCurrent") == green.handle
    assert sim.get("cuCtxGetCurrent") == sim.context(0)
    # A push that was not taken back would keep it from other threads.
    assert in_thread(lambda: sim.answer("cuCtxPushCurrent_v2", green.handle)) == 0
