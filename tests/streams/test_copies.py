"""`device=` and `copy=` between host and device: who copies, where, in what order."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.cuda_producers import (
    DLPackArray,
    Framework,
    framework,
)
from support.device_arrays import values, work
from support.dlpack_abi import DLPACK_FLAG_BITMASK_IS_COPIED
from support.fake_producers import OldProducer, Producer
from support.optional_libraries import requires
from support.simulated_driver import Simulation
from support.simulated_kernels import read, write
from support.simulated_objects import LEGACY

ARRAY = np.arange(12, dtype="float32").reshape(3, 4)


class Moving(Producer):
    """A producer that moves its tensors itself."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export memory of another device."""
        self.calls.append(("__dlpack__", keywords))
        device = keywords.get("dl_device", self.device)
        flags = DLPACK_FLAG_BITMASK_IS_COPIED
        return Producer(device=device, flags=flags).capsule()


# Host to device.


@pytest.mark.parametrize(
    "make",
    [
        lambda: ARRAY,
        lambda: dlx.from_dlpack(ARRAY),
        lambda: ARRAY.data,
        lambda: Producer(),
        lambda: OldProducer(),
    ],
    ids=["array", "dlx.Tensor", "buffer", "producer", "old producer"],
)
def test_what_is_on_the_host_goes_to_a_device(sim: Simulation, make: Any) -> None:
    """R37, R57: also where its producer does not move it."""
    source, s = make(), sim.stream()
    tensor = dlx.from_dlpack(source, device="cuda:0", stream=s)
    assert tensor.device == "cuda:0"
    assert tensor.stream == s.handle
    assert tensor.is_copied
    assert tensor.is_contiguous
    expected = dlx.from_dlpack(source).numpy()
    assert values(sim, tensor).tolist() == expected.tolist()
    assert sim.races == []


def test_a_move_to_a_device_is_one_copy(sim: Simulation) -> None:
    """R50: on the stream that was asked for, and the host waits for it."""
    s = sim.stream()
    dlx.from_dlpack(ARRAY, device="cuda:0", stream=s)
    sim.clear_journal()
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=s)
    assert work(sim) == ["allocate", "copy", "synchronize"]
    calls = [call for call in sim.calls() if "stream" in call.arguments]
    assert {call.arguments["stream"] for call in calls} == {s.handle}
    del tensor


def test_the_source_may_change_as_soon_as_it_was_copied(sim: Simulation) -> None:
    """R59: host memory is overwritten right after its copy to the device."""
    array, s = ARRAY.copy(), sim.stream()
    tensor = dlx.from_dlpack(array, device="cuda:0", stream=s)
    sim.host_write(array.ctypes.data, array.nbytes)
    array[:] = -1
    assert values(sim, tensor).tolist() == ARRAY.tolist()
    assert sim.races == []


def test_a_copy_for_no_stream_runs_on_the_current_one(sim: Simulation) -> None:
    """R50, R84: that of `dlx.stream`, else the default."""
    assert dlx.from_dlpack(ARRAY, device="cuda:0").stream == LEGACY
    s = sim.stream()
    with dlx.stream(s, device="cuda:0"):
        tensor = dlx.from_dlpack(ARRAY).to(device="cuda:0")
    read(s, tensor)
    assert sim.races == []


def test_the_producer_is_asked_first(sim: Simulation) -> None:
    """R50, R57, R68: and what it does is left to it."""
    s, producer = sim.stream(), Moving()
    tensor = dlx.from_dlpack(producer, device="cuda:0", stream=s)
    assert producer.asked["dl_device"] == (2, 0)
    assert producer.asked["stream"] == s.handle
    assert tensor.device == "cuda:0"
    assert work(sim) == []


@pytest.mark.parametrize("bases", [0, 1], ids=["Tensor", "subclass"])
def test_torch_on_the_cpu_goes_to_a_device(sim: Simulation, bases: int) -> None:
    """R57, R85: torch asserts that what is on the CPU has no stream."""
    torch = requires("torch")
    # A subclass is asked by its method.
    kind = type("Plain", (torch.Tensor,), {}) if bases else torch.Tensor
    source = torch.arange(6.0).reshape(2, 3).T.as_subclass(kind)
    tensor = dlx.from_dlpack(source, device="cuda:0", stream=sim.stream())
    assert values(sim, tensor).tolist() == source.tolist()
    assert sim.races == []


def test_an_error_of_the_producer_that_is_no_refusal_passes(sim: Simulation) -> None:
    """R60: dlx copies only after a BufferError."""

    class Failing(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dlx.from_dlpack(Failing(), device="cuda:0")


@pytest.mark.parametrize("make", [lambda: ARRAY, lambda: dlx.from_dlpack(ARRAY)])
def test_a_move_without_a_copy_is_refused(sim: Simulation, make: Any) -> None:
    """R48, R58: `copy=False` gives the driver no work."""
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(make(), device="cuda:0", copy=False)
    assert work(sim) == []


# Device to host.


@pytest.mark.parametrize("copy", [None, True])
def test_a_result_on_the_host_is_complete(
    sim: Simulation, library: Framework, copy: bool | None
) -> None:
    """R50, R54, R55: the copy runs where the library works, so nothing is ordered."""
    with library.stream(sim.stream()):
        array = library.full((2, 3), 1.5)
        sim.clear_journal()
        tensor = dlx.from_dlpack(array, device="cpu", copy=copy)
    assert work(sim) == ["copy", "synchronize"]
    sim.host_read(tensor.data_ptr, tensor.nbytes)
    assert tensor.numpy().tolist() == [[1.5] * 3] * 2
    assert tensor.is_copied
    assert sim.races == []


def test_a_producer_without_a_table_orders_itself(sim: Simulation) -> None:
    """R55, R80: it is told the stream that the copy runs on."""
    library = framework(DLPackArray)
    with library.stream(sim.stream()):
        array = library.full((4,), 2.0)
        tensor = dlx.from_dlpack(array, device="cpu")
    sim.host_read(tensor.data_ptr, tensor.nbytes)
    assert tensor.numpy().tolist() == [2.0] * 4
    assert sim.races == []


def test_nothing_is_waited_for_where_no_order_is_asked_for(
    sim: Simulation, library: Framework
) -> None:
    """R76: and that shows."""
    with library.stream(sim.stream()):
        array = library.full((4,), 2.0)
        with dlx.stream(sim.stream(), device="cuda:0"):
            dlx.from_dlpack(array, device="cpu", stream=-1)
            assert len(sim.races) == 1
            dlx.from_dlpack(array, device="cpu")
            assert len(sim.races) == 1


def test_the_end_of_a_use_is_waited_for(sim: Simulation) -> None:
    """R55: what was written on another stream arrives."""
    tensor, s = dlx.from_dlpack(ARRAY, device="cuda:0"), sim.stream()
    with tensor.use(stream=s) as used:
        write(s, used)
    values(sim, tensor)
    assert sim.races == []


# Device to device.


def test_a_copy_on_a_device_waits_for_the_source(
    sim: Simulation, library: Framework
) -> None:
    """R47, R50, R80: on the stream that was asked for; and the producer waits (H1)."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((2, 3), 1.5)
        dlx.from_dlpack(array, copy=True, stream=s)
        sim.advance()
        sim.clear_journal()
        tensor = dlx.from_dlpack(array, copy=True, stream=s)
        done = ["record", "wait", "copy", "record", "wait"]
        assert [call for call in work(sim) if call not in ("free", "allocate")] == done
        array += 1
    assert tensor.data_ptr != array.data
    assert tensor.is_copied
    assert tensor.stream == s.handle
    read(s, tensor)
    assert values(sim, tensor).tolist() == [[1.5] * 3] * 2
    assert sim.races == []


def test_a_copy_on_the_stream_of_the_library_is_ordered_already(
    sim: Simulation, library: Framework
) -> None:
    """R81: the driver is asked for memory and a copy, and for no event."""
    p = sim.stream()
    with library.stream(p):
        array = library.full((2, 3), 1.5)
        sim.clear_journal()
        tensor = dlx.from_dlpack(array, copy=True, stream=p)
        assert work(sim) == ["allocate", "copy"]
        array += 1
        del array
        library.full((2, 3))
    assert values(sim, tensor).tolist() == [[1.5] * 3] * 2
    assert sim.races == []


def test_a_copy_without_order_races(sim: Simulation, library: Framework) -> None:
    """R76: `stream=-1` waits for nothing, as the race shows."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        with dlx.stream(sim.stream(), device="cuda:0"):
            dlx.from_dlpack(array, copy=True, stream=-1)
    assert len(sim.races) == 1


def test_the_source_is_held_until_it_was_read(
    sim: Simulation, library: Framework
) -> None:
    """H4: its allocator would give the memory out again."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,), 1.0)
        tensor = dlx.from_dlpack(array, copy=True, stream=s)
        array.free()
        del array
    with library.stream(p):
        library.full((4,), 2.0)
    assert values(sim, tensor).tolist() == [1.0] * 4
    assert sim.races == []


def test_a_copy_goes_to_another_device(sim: Simulation, library: Framework) -> None:
    """R50, R80, R86: each stream belongs to its device."""
    s = sim.stream(1)
    with library.stream(sim.stream(0)):
        array = library.full((2, 3), 1.5)
        tensor = dlx.from_dlpack(array, device="cuda:1", stream=s)
        array += 1
    assert tensor.device == "cuda:1"
    assert tensor.stream == s.handle
    assert values(sim, tensor).tolist() == [[1.5] * 3] * 2
    assert sim.races == []
