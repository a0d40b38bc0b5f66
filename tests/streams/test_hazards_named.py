"""The hazards H7 to H12 of docs/streams.md: each one with dlx's order, and without."""

from __future__ import annotations

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework
from support.simulated_driver import Simulation
from support.simulated_kernels import read, refused, write
from support.simulated_objects import LEGACY, PER_THREAD, DriverError

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
    memory = sim.allocate(16, kind="managed")
    one.write(memory)
    dlx.Stream(other).wait(dlx.Stream(one))
    other.read(memory)
    assert sim.races == []


# H8: 1 and 2 name streams of the context and the thread.


def test_the_handle_of_a_threads_default_stream_names_another_in_each_thread(
    sim: Simulation,
) -> None:
    """H8: without dlx, 2 in two threads is a race."""
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
    """H9, R141: a table that answers NULL is ordered after the legacy stream."""
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
    """H11: pinned and managed memory, with and without `synchronize`."""
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
    """H12, R80: the export orders it, and `stream=-1` does not."""
    p, consumer = sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
        tensor.__dlpack__(stream=consumer.handle if ordered else -1)
        read(consumer, tensor)
    assert bool(sim.races) == (not ordered)
