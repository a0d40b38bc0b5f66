"""Memory of dlx's own on a device: had, given back, and never lost."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework
from support.device_arrays import values, work
from support.dlpack_abi import Allocation, delete, from_table, table_of, take
from support.fake_cuda_interface import Shown
from support.simulated_driver import Simulation
from support.simulated_kernels import OwnStream, alone, read, settle, write
from support.simulated_objects import LEGACY, RELAXED, Stream

ARRAY = np.arange(12, dtype="float32").reshape(3, 4)
CUDA = (2, 0)


# `empty`


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4)], ids=str)
def test_uninitialized_memory_of_a_device(sim: Simulation, shape: Any) -> None:
    """R93, R96, R138: aligned, writable, and at NULL without elements."""
    tensor = dlx.empty(shape, "float32", device="cuda:0")
    assert tensor.shape == shape
    assert tensor.dtype == "float32"
    assert tensor.device == "cuda:0"
    assert (tensor.is_copied, tensor.readonly) == (False, False)
    assert tensor.data_ptr % 256 == 0
    assert (tensor.data_ptr == 0) == (tensor.size == 0)
    if tensor.size:
        write(sim.default_stream(LEGACY), tensor)
    del tensor
    assert work(sim) == (["allocate", "free"] if 0 not in shape else [])
    assert sim.races == []


def test_empty_memory_is_of_the_current_stream(sim: Simulation) -> None:
    """R50: there, and freed in its order."""
    s = sim.stream()
    with dlx.stream(s, device="cuda:0"):
        tensor = dlx.empty(3, "float32", device="cuda:0")
    write(s, tensor)
    del tensor
    with dlx.stream(s, device="cuda:0"):
        again = dlx.empty(3, "float32", device="cuda:0")
    write(s, again)
    assert sim.races == []


def test_memory_keeps_the_stream_of_the_tensor_that_names_it(sim: Simulation) -> None:
    """H3, R151: a tensor whose library names none, imported for a stream object."""
    named = OwnStream(sim.stream())
    stream = named.stream
    tensor = dlx.from_dlpack(Shown(sim.allocate(24)), stream=named)
    delete(from_table(table_of(dlx.Tensor), tensor))
    made = dlx.empty(4, "float32", device="cuda:0")
    assert made.stream is not None
    assert made.stream.handle == stream.handle
    del named, tensor
    settle(sim)
    assert stream.live
    write(made.stream, made)
    del made
    assert not stream.live


def test_another_stream_waits_for_memory_that_is_just_there(sim: Simulation) -> None:
    """R80: memory is allocated in stream order, so its first use waits."""
    s = sim.stream()
    tensor = dlx.empty(3, "float32", device="cuda:0")
    with tensor.use(stream=s) as used:
        write(s, used)
    del used, tensor
    gc.collect()
    dlx.empty(3, "float32", device="cuda:0")
    assert sim.races == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: dlx.empty(3, "float32", device="cuda:0"),
        lambda: dlx.from_dlpack(ARRAY, device="cuda:0"),
    ],
    ids=["empty", "copy"],
)
def test_memory_that_runs_out_is_a_memory_error(
    sim: Simulation, make: Callable[[], Any]
) -> None:
    """R63: the driver's out-of-memory code is no BufferError."""
    sim.fail_next("cuMemAllocAsync", 2)
    with pytest.raises(MemoryError, match="could not allocate"):
        make()


@pytest.mark.parametrize("device", ["cuda_managed:0", "cuda_host:0", "metal:0"])
def test_memory_of_other_kinds_is_refused(sim: Simulation, device: str) -> None:
    """R62: pinned and managed memory, and a device without a driver."""
    with pytest.raises(BufferError, match="does not allocate on"):
        dlx.empty(3, "float32", device=device)
    with pytest.raises(BufferError, match="does not move it to"):
        dlx.from_dlpack(ARRAY, device=device)


# The allocator of the table.


def test_the_allocator_of_the_table_gives_device_memory(sim: Simulation) -> None:
    """R134, R135, R138: compact strides, a deleter, no report of an error."""
    made = Allocation(dlx.Tensor, (2, 3), device=CUDA)
    tensor = made.managed.dl_tensor
    assert (made.code, made.errors) == (0, [])
    assert (tensor.device.device_type, tensor.device.device_id) == CUDA
    assert (tensor.shape[:2], tensor.strides[:2]) == ([2, 3], [3, 1])
    made.delete()
    assert work(sim) == ["allocate", "free"]


def test_the_allocator_needs_no_python_of_its_caller(sim: Simulation) -> None:
    """R136: a thread that Python has not seen."""
    made = in_thread(lambda: Allocation(dlx.Tensor, (2, 3), device=CUDA))
    assert made.code == 0
    made.delete()


@pytest.mark.parametrize(
    ("code", "kind"), [(2, b"MemoryError"), (700, b"RuntimeError")]
)
def test_the_allocator_reports_by_its_callback_alone(
    sim: Simulation, code: int, kind: bytes
) -> None:
    """R135, R136, R137: the kind of the error, also where nobody listens."""
    sim.fail_next("cuMemAllocAsync", code, 2)
    made = Allocation(dlx.Tensor, (2, 3), device=CUDA)
    assert made.code == -1
    assert [error[1] for error in made.errors] == [kind]
    assert Allocation(dlx.Tensor, (2,), device=CUDA, reports=False).code == -1


# Lifetime.


def test_memory_lives_as_long_as_its_last_view(sim: Simulation) -> None:
    """R15, R16: two exports; the second one's deleter frees."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0")
    exports = [
        take(tensor.__dlpack__(stream=LEGACY, max_version=(1, 3))) for _ in range(2)
    ]
    del tensor
    sim.clear_journal()
    delete(exports[0])
    assert work(sim) == []
    delete(exports[1])
    assert work(sim) == ["free"]


def test_memory_is_freed_after_the_streams_that_used_it(sim: Simulation) -> None:
    """H4: both that of a use, and that of an import."""
    p, s, t = (sim.stream() for _ in range(3))
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=p)
    other = dlx.from_dlpack(tensor, stream=s)
    read(s, other)
    with tensor.use(stream=t) as used:
        read(t, used)
    del tensor, other, used
    again = dlx.from_dlpack(ARRAY, device="cuda:0", stream=p)
    write(p, again)
    sim.advance()
    del again
    gc.collect()
    dlx.from_dlpack(ARRAY, device="cuda:0", stream=p)
    assert sim.races == []


def test_a_stream_object_lives_as_long_as_memory_of_it(sim: Simulation) -> None:
    """H3: the memory is freed on that stream, which is destroyed after that."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=OwnStream(sim.stream()))
    gc.collect()
    assert values(sim, tensor).tolist() == ARRAY.tolist()
    del tensor
    gc.collect()
    assert "cuMemFreeAsync" in sim.called()
    assert "cuStreamDestroy_v2" in sim.called("test")


def lent(sim: Simulation, library: Framework, p: Stream, size: int = 3) -> dlx.Tensor:
    """Memory of a stream that only its library names, while it works there."""
    with library.stream(p):
        dlx.from_dlpack(library.full((2,)), stream=-1)
        tensor = dlx.empty(size, "float32", device="cuda:0")
        write(p, tensor)
    return tensor


def frees(sim: Simulation) -> list[int]:
    """Return the streams that memory was freed on since the journal was cleared."""
    called = [call for call in sim.calls() if call.name == "cuMemFreeAsync"]
    return [call.arguments["stream"] for call in called]


@alone
def test_memory_of_a_stream_that_is_current_is_freed_on_it(
    sim: Simulation, library: Framework
) -> None:
    """H3, R142: it is alive then."""
    p = sim.stream()
    box = [lent(sim, library, p)]
    sim.clear_journal()
    with library.stream(p):
        box.clear()
    assert frees(sim) == [p.handle]
    assert sim.races == []


@alone
def test_memory_of_a_stream_that_may_be_gone_is_kept_back(
    sim: Simulation, library: Framework
) -> None:
    """H3, R142: until it is current again, so that nothing waits for the device."""
    p = sim.stream()
    box = [lent(sim, library, p)]
    sim.clear_journal()
    with sim.stream().capture():
        box.clear()
    assert frees(sim) == []
    with library.stream(p):
        again = dlx.empty(3, "float32", device="cuda:0")
    assert frees(sim) == [p.handle]
    assert "cuCtxSynchronize" not in sim.called()
    assert sim.races == []
    del again


@alone
def test_memory_that_is_too_much_to_keep_back_is_freed_after_known_work(
    sim: Simulation, library: Framework
) -> None:
    """H3: 256 MiB are kept for streams that may be gone; the host waits for nothing."""
    p, q = sim.stream(), sim.stream()
    box = [lent(sim, library, p, size=16 << 20) for _ in range(5)]
    q.wait_for(p)
    p.destroy()
    sim.clear_journal()
    with library.stream(q):
        box.clear()
    assert LEGACY in frees(sim)
    assert "cuCtxSynchronize" not in sim.called()
    assert sim.races == []


def test_freeing_what_was_kept_back_takes_a_bounded_number_of_calls(
    sim: Simulation,
) -> None:
    """Each block tries two others again, however many a lasting error keeps."""
    s = sim.stream()
    box = [dlx.from_dlpack(ARRAY, device="cuda:0", stream=s) for _ in range(50)]
    sim.clear_journal()
    sim.set_error(700)
    box.clear()
    assert len(sim.called()) <= 50 * 9 * 2
    sim.set_error(0)


@alone
def test_an_allocation_takes_as_many_calls_however_much_is_kept_back(
    sim: Simulation, library: Framework
) -> None:
    """H3: blocks of streams that may be gone are passed over without the driver."""

    def calls(kept: int) -> int:
        p = sim.stream()
        box = [lent(sim, library, p) for _ in range(kept)]
        p.destroy()
        box.clear()
        sim.clear_journal()
        dlx.empty(1, "int8", device="cuda:0")
        return len(sim.called())

    assert calls(1) == calls(100)


def test_a_copy_for_a_consumer_does_not_keep_its_stream(sim: Simulation) -> None:
    """R82: the consumer destroys its stream before it drops the copy."""
    tensor, s = dlx.from_dlpack(ARRAY, device="cuda:0"), sim.stream()
    managed = take(tensor.__dlpack__(stream=s.handle, copy=True, max_version=(1, 3)))
    s.launch(True, managed.dl_tensor.data, tensor.nbytes)
    s.destroy()
    delete(managed)
    assert sim.races == []


def test_memory_is_freed_in_any_thread(sim: Simulation) -> None:
    """R13, H8: without a context. The legacy stream waits for every thread's own."""
    s = sim.stream()
    box = [dlx.from_dlpack(ARRAY, device="cuda:0", stream=stream) for stream in (s, 2)]
    write(sim.default_stream(2), box[1])
    sim.clear_journal()
    in_thread(box.clear)
    assert sorted(frees(sim)) == [LEGACY, s.handle]
    assert sim.races == []


@pytest.mark.parametrize("mode", [0, RELAXED])
def test_memory_that_dies_in_a_capture_is_freed_after_it(
    sim: Simulation, mode: int
) -> None:
    """H6: a free would become part of the graph."""
    s = sim.stream()
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=s)
    with s.capture(mode):
        del tensor
        assert s.capture_status() == 1
        assert "free" not in work(sim)
    dlx.empty(3, "float32", device="cuda:0")
    assert work(sim).count("free") == 2


def test_nothing_is_lost_over_many_copies(sim: Simulation, library: Framework) -> None:
    """R8: streams, events and memory are as many as before."""
    p, s = sim.stream(), sim.stream()
    before: dict[str, int] = {}
    for index in range(20):
        with library.stream(p):
            array = library.full((4,), 1.0)
            one = dlx.from_dlpack(array, copy=True, stream=s)
            two = dlx.from_dlpack(one, copy=True, stream=p)
            values(sim, two)
            del one, two
            array.free()
            del array
        settle(sim)
        counts = sim.counts
        kept = {name: counts[name] for name in ("allocations", "events", "streams")}
        if index == 5:
            before = kept
    assert kept == before
    assert sim.races == []
