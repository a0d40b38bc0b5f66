"""Arrow's arrays on a device: the event that they bring is waited for."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_void_p
from typing import Any

import dlx
import pytest
from support.arrow_structs import OnDevice
from support.simulated_driver import Simulation
from support.simulated_kernels import read, refused, until, violation
from support.simulated_objects import Event, Memory, Stream

NBYTES = 16
Show = Callable[..., OnDevice]


def place_of(event: Event) -> c_void_p:
    """Return the place of a `cudaEvent_t`, whose address is a `sync_event`."""
    return c_void_p(event.handle)


@pytest.fixture
def memory(sim: Simulation, p: Stream) -> Memory:
    """Give memory that `p` writes."""
    memory = sim.allocate(NBYTES)
    p.write(memory)
    return memory


@pytest.fixture
def show(memory: Memory, p: Stream) -> Show:
    """Give what makes an array of the memory, behind an event of `p`."""
    event = place_of(p.record())

    def make(**fields: Any) -> OnDevice:
        array = OnDevice(memory.address, **{"sync_event": addressof(event)} | fields)
        array.kept = event
        return array

    return make


def test_the_stream_of_the_import_waits_for_the_event(
    sim: Simulation, show: Show, s: Stream
) -> None:
    """R153: before the first access; nobody writes to it."""
    array = show()
    tensor = dlx.from_dlpack(array, stream=s)
    read(s, tensor)
    assert sim.races == []
    assert (tensor.shape, str(tensor.device)) == ((4,), "cuda:0")
    assert tensor.readonly
    assert array.asked == [{}]


def test_without_a_stream_a_consumer_waits_for_the_event(
    sim: Simulation, show: Show, s: Stream
) -> None:
    """R153, R80: on whichever stream it names."""
    tensor = dlx.from_dlpack(show())
    capsule = tensor.__dlpack__(stream=s.handle, max_version=(1, 3))
    read(s, tensor)
    assert sim.races == []
    del capsule


def test_with_no_order_nothing_waits(sim: Simulation, show: Show, s: Stream) -> None:
    """R76: the caller's matter; and so the kernel races."""
    read(s, dlx.from_dlpack(show(), stream=-1))
    assert len(sim.races) == 1


def test_an_array_without_an_event_is_ready(
    sim: Simulation, show: Show, p: Stream, s: Stream
) -> None:
    """R153: NULL says so."""
    p.synchronize()
    sim.clear_journal()
    tensor = dlx.from_dlpack(show(sync_event=None), stream=s)
    assert not {"cuStreamWaitEvent", "cuEventSynchronize"} & set(sim.called())
    read(s, tensor)
    assert sim.races == []


def test_an_event_that_has_passed_leaves_nothing_to_wait_for(
    sim: Simulation, show: Show, p: Stream, s: Stream
) -> None:
    """R153: then the tensor can be used in a later capture."""
    p.synchronize()
    tensor = dlx.from_dlpack(show())
    sim.clear_journal()
    with s.capture():
        tensor.__dlpack__(stream=s.handle, max_version=(1, 3))
    assert "cuStreamWaitEvent" not in sim.called()


def test_the_array_is_held_until_the_stream_is_done(
    sim: Simulation, show: Show, s: Stream
) -> None:
    """R153, H4: its producer may write to the memory once it is released."""
    array = show()
    tensor = dlx.from_dlpack(array, stream=s)
    read(s, tensor)
    del tensor
    assert array.releases == 0
    s.advance()
    until(lambda: array.releases == 1)


def test_a_block_waits_and_holds(sim: Simulation, show: Show, s: Stream) -> None:
    """R153: with `dlx.borrow`, too."""
    array = show()
    with dlx.borrow(array, stream=s) as (tensor, stream):
        read(stream, tensor)
    assert sim.races == []
    del tensor
    assert array.releases == 0
    s.advance()
    until(lambda: array.releases == 1)


def test_a_block_holds_an_array_without_an_event(
    sim: Simulation, show: Show, p: Stream, s: Stream
) -> None:
    """R153, H4: that nothing is to be waited for says nothing of the end."""
    p.synchronize()
    array = show(sync_event=None)
    with dlx.borrow(array, stream=s) as (tensor, stream):
        read(stream, tensor)
    del tensor
    assert array.releases == 0
    s.advance()
    until(lambda: array.releases == 1)


def test_a_copy_to_the_host_waits(sim: Simulation, show: Show, memory: Memory) -> None:
    """R153: `device="cpu"`."""
    copy = dlx.from_dlpack(show(), device="cpu")
    assert sim.races == []
    assert bytes(memoryview(copy).cast("B")) == bytes(memory.content)


@pytest.mark.parametrize(("kind", "device_type"), [("managed", 13), ("pinned", 3)])
def test_other_memory_of_cuda_has_events_too(
    sim: Simulation, p: Stream, s: Stream, kind: str, device_type: int
) -> None:
    """R153: managed memory by a stream, pinned memory by the host, which reads it."""
    memory = sim.allocate(NBYTES, kind=kind)
    p.write(memory)
    event = place_of(p.record())
    array = OnDevice(
        memory.address, device_type=device_type, sync_event=addressof(event)
    )
    if kind == "managed":
        read(s, dlx.from_dlpack(array, stream=s))
    else:
        dlx.from_dlpack(array)
        sim.host_read(memory.address, NBYTES)
    assert sim.races == []


def test_a_null_event_behind_a_pointer_is_refused(show: Show) -> None:
    """R153: NULL in place of the pointer says that there is none."""
    place = c_void_p(None)
    array = show(sync_event=addressof(place))
    with pytest.raises(BufferError, match="points to a NULL event; expected an event"):
        dlx.from_dlpack(array)
    assert array.releases == 1


@pytest.mark.parametrize("named", [True, False])
def test_a_dead_event_is_refused(
    sim: Simulation, show: Show, p: Stream, s: Stream, named: bool
) -> None:
    """R153: with what the driver says of it."""
    event = p.record()
    place = place_of(event)
    event.destroy()
    array = show(sync_event=addressof(place))
    message = "sync_event is no event, or no longer one: cu.* failed with 400"
    with violation(sim, "dead event"), pytest.raises(BufferError, match=message):
        dlx.from_dlpack(array, stream=s if named else None)
    assert array.releases == 1


def test_an_array_of_another_device_than_it_says_is_refused(show: Show) -> None:
    """R62: the driver knows."""
    with pytest.raises(BufferError, match="be on cuda:1, and its memory is on cuda:0"):
        dlx.from_dlpack(show(device_id=1))


def test_a_stream_of_another_device_is_refused(sim: Simulation, show: Show) -> None:
    """R86: as everywhere."""
    with pytest.raises(ValueError, match="of cuda:1, but the tensor is on cuda:0"):
        dlx.from_dlpack(show(), stream=sim.stream(1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"null_count": 2}, "null_count 2"),
        ({"null_count": -1, "validity": 8}, "null_count -1 .unknown. and a bitmap"),
        ({"format": b"b"}, "booleans of one bit each"),
    ],
    ids=["nulls", "unknown nulls", "bits"],
)
def test_memory_of_a_device_is_not_read_to_find_nulls(
    show: Show, fields: dict[str, Any], message: str
) -> None:
    """R153: the host cannot."""
    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(show(**fields))


def test_a_capturing_stream_cannot_wait_for_the_event(show: Show, s: Stream) -> None:
    """H6: it is outside of the capture."""
    array = show()
    with s.capture(), refused(s, match="import the tensor before the capture"):
        dlx.from_dlpack(array, stream=s)
    assert array.releases == 1


def test_rocm_has_events_too(sim: Simulation) -> None:
    """R153: simulated, as all of ROCm."""
    p, s = sim.stream(hip=True), sim.stream(hip=True)
    memory = sim.allocate(NBYTES, kind="hip")
    p.write(memory)
    place = place_of(p.record())
    array = OnDevice(memory.address, device_type=10, sync_event=addressof(place))
    tensor = dlx.from_dlpack(array, stream=s)
    s.launch(False, tensor.data_ptr, NBYTES)
    assert sim.races == []
