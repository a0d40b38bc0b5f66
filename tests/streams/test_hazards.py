"""The hazards H1 to H6 of docs/streams.md: each one with dlx's order, and without."""

from __future__ import annotations

import gc

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import DLPackArray, Framework, TableArray, framework
from support.simulated_driver import Simulation
from support.simulated_kernels import (
    OwnStream,
    read,
    refused,
    unraisable,
    violation,
    write,
)
from support.simulated_objects import DriverError

SAFE = ["auto", "record_stream"]

# H1: the producer mutates while the kernel runs.


def test_a_producer_that_mutates_races_with_a_kernel_on_another_stream(
    sim: Simulation, library: Framework
) -> None:
    """H1: an import orders the beginning of the use, not its end."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        array += 1
    assert sim.races


def test_a_producer_that_mutates_after_a_borrow_waits_for_the_kernel(
    sim: Simulation, library: Framework
) -> None:
    """H1, R150: the end of the block makes the producer's stream wait."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        with dlx.borrow(array, stream=s) as (tensor, stream):
            read(stream, tensor)
        array += 1
    assert sim.races == []


def test_a_producer_that_mutates_after_a_use_waits_for_the_kernel(
    sim: Simulation, library: Framework
) -> None:
    """H1, R150: the end of the block makes the producer's stream wait."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        kept = dlx.from_dlpack(array)
        with kept.use(stream=s) as tensor:
            read(tensor.stream, tensor)
        array += 1
    assert sim.races == []


def test_a_use_joins_the_stream_that_the_producer_works_on_at_its_end(
    sim: Simulation, library: Framework
) -> None:
    """H1: whoever changed the stream in the block asked for that."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        use = dlx.from_dlpack(array).use(stream=s)
        tensor = use.__enter__()
        read(s, tensor)
    with library.stream(q):
        use.__exit__(None, None, None)
        array += 1
    assert sim.races == []


# H2: two arrays on two streams.


@pytest.mark.parametrize("stream", [None, -1])
def test_a_kernel_on_arrays_of_two_streams_needs_both_joins(
    sim: Simulation, stream: int | None
) -> None:
    """H2: both come before it, and both libraries go on after it."""
    one, other = framework(TableArray, "one"), framework(TableArray, "other")
    with one.stream(sim.stream()), other.stream(sim.stream()):
        a, b = one.full((4,)), other.full((4,))
        with dlx.borrow(a, out=b, stream=stream) as (ta, tb, lead):
            lead = lead or one.current_stream()
            read(lead, ta)
            write(lead, tb)
        a += 1
        b += 1
    assert bool(sim.races) == (stream == -1)


# H3: a stream dies before what remembers it.


def test_the_bare_handle_of_a_destroyed_stream_dangles(
    sim: Simulation, library: Framework
) -> None:
    """H3: whoever passes an integer vouches for it."""
    p, s, consumer = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s.handle)
    s.destroy()
    with violation(sim, "dead stream"):
        with pytest.raises(dlx.CudaError):
            tensor.__dlpack__(stream=consumer.handle)
        with unraisable(BufferError, "was destroyed before a tensor"):
            del tensor


def test_a_stream_object_lives_as_long_as_a_tensor_that_uses_it(
    sim: Simulation, library: Framework
) -> None:
    """H3, R151: its last name is deleted while the tensor lives."""
    p, consumer = sim.stream(), sim.stream()
    owner = OwnStream(sim.stream())
    handle = owner.stream.handle
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=owner)
    del owner
    gc.collect()
    write(tensor.stream, tensor)
    assert tensor.stream == handle
    tensor.__dlpack__(stream=consumer.handle)
    read(consumer, tensor)
    assert sim.races == []
    del tensor
    assert "cuStreamDestroy_v2" in sim.called("test")


def test_a_ready_event_outlives_the_stream_of_the_producer(
    sim: Simulation, library: Framework
) -> None:
    """H3, R142: the handle that a table told is not used again."""
    p, q, consumer = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array)
    p.destroy()
    with library.stream(q):
        tensor.__dlpack__(stream=consumer.handle)
        read(consumer, tensor)
    assert sim.races == []


# H4: the memory goes to new work while a kernel still runs.


def drop_while_a_kernel_runs(sim: Simulation, library: Framework, release: str) -> None:
    """Read on another stream, drop, and have the producer allocate again."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        first = array.data
        tensor = dlx.from_dlpack(array, stream=s, release=release)  # type: ignore[arg-type]
        read(s, tensor)
        del tensor
        array.free()
        # Its block is reused at once if it is free.
        again = library.full((4,))
        if release == "none":
            assert again.data == first


def test_memory_that_is_freed_at_once_is_overwritten_under_the_kernel(
    sim: Simulation, library: Framework
) -> None:
    """H4: cutile-python #88."""
    drop_while_a_kernel_runs(sim, library, "none")
    assert sim.races


@pytest.mark.parametrize("release", SAFE)
def test_memory_is_not_reused_before_the_kernel_is_done(
    sim: Simulation, library: Framework, release: str
) -> None:
    """H4: the library frees the array and allocates again."""
    drop_while_a_kernel_runs(sim, library, release)
    assert sim.races == []


# H5: the producer's own reference dies first, and the deleter runs anywhere.


@pytest.mark.parametrize("release", ["none", *SAFE])
def test_a_deleter_runs_in_a_thread_without_a_context(
    sim: Simulation, library: Framework, release: str
) -> None:
    """H5, R13: a kernel of a stream that the producer does not know is not raced."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        held = [dlx.from_dlpack(array, stream=s, release=release)]  # type: ignore[arg-type]
        array.free()
        read(s, held[0])
        in_thread(held.clear)
        library.full((4,))
        assert bool(sim.races) == (release == "none")


# H6: a graph is captured.


def test_the_default_of_the_standard_breaks_a_capture(sim: Simulation) -> None:
    """H6, R72: pytorch #163242; None means the legacy stream."""
    library = framework(DLPackArray)
    p = sim.stream(blocking=True)
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture()
        with pytest.raises(DriverError):
            array.__dlpack__(stream=None)
    with pytest.raises(DriverError):
        p.end_capture()


def test_dlx_refuses_what_would_break_a_capture(
    sim: Simulation, library: Framework
) -> None:
    """H6: an export to the legacy stream, while a blocking stream captures."""
    p = sim.stream(blocking=True)
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
        p.begin_capture()
        with refused(p, match="906"):
            tensor.__dlpack__(stream=None)
    p.end_capture()
