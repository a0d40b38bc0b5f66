"""The hazards H1 to H12 of docs/streams.md: each one with dlx's order, and without."""

from __future__ import annotations

import gc

import dlx
import pytest
from cuda_producers import DLPackArray, Framework, TableArray, framework
from kernels import OwnStream, in_thread, read, refused, violation, write
from simulated_driver import Simulation
from simulated_objects import LEGACY, PER_THREAD, DriverError

SAFE = ["auto", "wait-back", "record_stream", "sync"]

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
    """H1, R150."""
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
    """H1, R150."""
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
        del tensor


def test_a_stream_object_lives_as_long_as_a_tensor_that_uses_it(
    sim: Simulation, library: Framework
) -> None:
    """H3, R151."""
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
        if release in ("none", "wait-back", "sync"):
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
    """H4."""
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
    """H6."""
    p = sim.stream(blocking=True)
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
        p.begin_capture()
        with refused(p, match="906"):
            tensor.__dlpack__(stream=None)
    p.end_capture()


# H7: streams and data of two devices.


def test_an_event_of_another_device_cannot_be_recorded(sim: Simulation) -> None:
    """H7: so each is recorded in its stream's own context."""
    with pytest.raises(DriverError, match="400"):
        sim.event(device=0).record(sim.stream(device=1))


def test_a_tensor_is_not_used_on_a_stream_of_another_device(
    sim: Simulation, library: Framework
) -> None:
    """H7, R86: nothing is recorded or waited for."""
    array = library.full((4,))
    sim.clear_journal()
    with pytest.raises(ValueError, match=r"cuda:1, but the tensor is on cuda:0"):
        dlx.from_dlpack(array, stream=sim.stream(device=1))
    assert not {"cuEventRecord", "cuStreamWaitEvent"} & set(sim.called())


def test_streams_are_ordered_in_their_own_contexts_whatever_is_current(
    sim: Simulation, library: Framework
) -> None:
    """H7: and what was current stays so."""
    p, s = sim.stream(device=1), sim.stream(device=1)
    with library.stream(p):
        array = library.full((4,), device=1)
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
    assert sim.get("cuCtxGetCurrent") == sim.context(0)
    assert sim.races == []


def test_a_stream_waits_for_one_of_another_device(sim: Simulation) -> None:
    """H7: waits cross devices where they are asked for by name."""
    one, other = sim.stream(device=0), sim.stream(device=1)
    memory = sim.allocate(16)
    one.write(memory)
    dlx.Stream(other).wait(dlx.Stream(one))
    other.read(memory)
    assert sim.races == []


# H8: 1 and 2 name streams of the context and the thread.


def test_the_handle_of_a_threads_default_stream_names_another_in_each_thread(
    sim: Simulation,
) -> None:
    """H8."""
    memory = sim.allocate(16)
    sim.default_stream(PER_THREAD).write(memory)

    def other() -> None:
        sim.use_device(0)
        sim.default_stream(PER_THREAD).read(memory)

    in_thread(other)
    assert sim.races


def test_the_default_stream_of_another_thread_is_refused(
    sim: Simulation, library: Framework
) -> None:
    """H8: to wait for this thread's would be to wait for nothing."""
    with library.stream(sim.stream()):
        tensor = dlx.from_dlpack(library.full((4,)), stream=PER_THREAD)
        write(tensor.stream, tensor)

    def export() -> None:
        with refused(match="another thread"):
            tensor.__dlpack__(stream=PER_THREAD)

    in_thread(export)


def test_memory_used_on_a_threads_default_stream_is_freed_by_another_thread(
    sim: Simulation, library: Framework
) -> None:
    """H4, H8: no event can be recorded there, so the context is waited for."""
    p = sim.stream()
    with library.stream(p):
        array = library.full((4,))
        held = [dlx.from_dlpack(array, stream=PER_THREAD)]
        write(held[0].stream, held[0])
        array.free()
        in_thread(held.clear)
        library.full((4,))
    assert sim.races == []


def test_special_handles_are_those_of_the_tensors_device(
    sim: Simulation, library: Framework
) -> None:
    """H7, H8: not of the device that is current."""
    p = sim.stream(device=1)
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,), device=1), stream=LEGACY)
        with sim.on_device(1):
            read(tensor.stream, tensor)
    assert sim.races == []


# H9: the producer names no stream.


@pytest.mark.parametrize("ordered", [True, False])
def test_null_is_the_legacy_default_stream(
    sim: Simulation, library: Framework, ordered: bool
) -> None:
    """H9, R141."""
    s = sim.stream()
    tensor = dlx.from_dlpack(library.full((4,)), stream=s if ordered else -1)
    read(s, tensor)
    assert bool(sim.races) == (not ordered)


# H10: work that the producer does elsewhere.


@pytest.mark.parametrize("told", [True, False])
def test_work_on_another_stream_of_the_producer_is_the_users(
    sim: Simulation, library: Framework, told: bool
) -> None:
    """H10: only the current stream is covered; `Stream.wait` adds others."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
    q.wait_for(p)
    with library.stream(q):
        array += 1
    with library.stream(p):
        if told:
            dlx.Stream(p).wait(dlx.Stream(q))
        read(s, dlx.from_dlpack(array, stream=s))
    assert bool(sim.races) == (not told)


# H11: the host looks at memory that a device writes.


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("device", ["cuda:0", "cuda_managed:0"])
def test_the_host_waits_before_it_looks(
    sim: Simulation, waits: bool, device: str
) -> None:
    """H11."""
    s = sim.stream()
    memory = sim.allocate(16, kind="managed")
    s.write(memory)
    tensor = dlx.from_pointer(
        memory.address, (4,), "float32", device=device, owner=memory, stream=s
    )
    if waits:
        tensor.synchronize()
    sim.host_read(memory.address, memory.nbytes)
    assert bool(sim.races) == (not waits)


# H12: a library in the middle.


@pytest.mark.parametrize("ordered", [True, False])
def test_a_consumer_waits_for_all_that_dlx_knows(
    sim: Simulation, library: Framework, ordered: bool
) -> None:
    """H12, R80: for the producer, and for the stream that dlx's tensor was used on."""
    p, s, consumer = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)
        write(s, tensor)
        tensor.__dlpack__(stream=consumer.handle if ordered else -1)
        read(consumer, tensor)
    assert bool(sim.races) == (not ordered)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_consumer_waits_for_a_tensor_that_came_without_a_stream(
    sim: Simulation, library: Framework, ordered: bool
) -> None:
    """H12, R80."""
    p, consumer = sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
        tensor.__dlpack__(stream=consumer.handle if ordered else -1)
        read(consumer, tensor)
    assert bool(sim.races) == (not ordered)
