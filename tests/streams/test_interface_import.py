"""Import of objects that have nothing but `__cuda_array_interface__`."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.fake_cuda_interface import Shown
from support.simulated_driver import Simulation
from support.simulated_kernels import ordered, until
from support.simulated_objects import LEGACY, PER_THREAD

# What it describes


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_array_comes_in_as_it_is(sim: Simulation, version: int) -> None:
    """R152: of each version."""
    memory = sim.allocate(24)
    tensor = dlx.from_dlpack(Shown(memory, version=version))
    assert (tensor.shape, tensor.strides) == ((2, 3), (3, 1))
    assert tensor.dtype == "float32"
    assert tensor.data_ptr == memory.address
    assert tensor.device == "cuda:0"
    assert (tensor.readonly, tensor.is_copied) == (False, False)


def test_the_device_is_that_of_the_memory(sim: Simulation) -> None:
    """R69: the driver tells it by the address; the current device is another."""
    memory = sim.allocate(24, device=1)
    assert dlx.from_dlpack(Shown(memory)).device == "cuda:1"


def test_strides_are_in_bytes(sim: Simulation) -> None:
    """CAI: also negative ones."""
    memory = sim.allocate(64)
    data = (memory.address + 16, False)
    shown = Shown(memory, shape=(2, 3), strides=(24, -8), data=data)
    assert dlx.from_dlpack(shown).strides == (6, -2)


def test_read_only_memory_says_so(sim: Simulation) -> None:
    """R39: the second of "data" is `readonly`."""
    memory = sim.allocate(24)
    assert dlx.from_dlpack(Shown(memory, data=(memory.address, True))).readonly


@pytest.mark.parametrize("keywords", [{}, {"stream": 2}, {"device": "cuda:1"}])
def test_no_elements_are_at_address_0(sim: Simulation, keywords: Any) -> None:
    """R152: there is nothing to wait for, and no device to find."""
    memory, p = sim.allocate(24), sim.stream()
    shown = Shown(memory, p, shape=(0, 3), data=(0, False))
    tensor = dlx.from_dlpack(shown, **keywords)
    assert (tensor.size, tensor.data_ptr) == (0, 0)
    assert tensor.device == keywords.get("device", "cuda:0")
    assert ordered(sim) == []


def test_memory_moves_to_another_device_as_a_copy_alone(sim: Simulation) -> None:
    """R48, R57: it is on device 0."""
    shown = Shown(sim.allocate(24), sim.stream())
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(shown, device="cuda:1", copy=False)
    tensor = dlx.from_dlpack(shown, device="cuda:1")
    assert tensor.device == "cuda:1"
    assert tensor.is_copied
    assert sim.races == []


def test_the_device_that_it_is_on_may_be_asked_for(sim: Simulation) -> None:
    """R57: nothing has to be moved."""
    memory = sim.allocate(24)
    assert dlx.from_dlpack(Shown(memory), device="cuda:0").data_ptr == memory.address


def test_an_address_that_no_driver_knows_is_refused(sim: Simulation) -> None:
    """R63: of memory on the host, say."""
    elements = np.arange(6, dtype="f4")
    shown = Shown(sim.allocate(24), data=(elements.ctypes.data, False))
    with pytest.raises(BufferError, match="not memory that the driver knows"):
        dlx.from_dlpack(shown)


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "version 4": ({"version": 4}, "version 4; expected 0 to 3"),
    "version -1": ({"version": -1}, "version -1; expected 0 to 3"),
    "no version": ({"version": ...}, 'has no "version"; expected 0 to 3'),
    "version of another type": ({"version": "3"}, "version '3'; expected"),
    "mask": ({"mask": object()}, "mask .*; expected none"),
    "other byte order": ({"typestr": ">f4"}, 'typestr ">f4"'),
    "void": ({"typestr": "|V2"}, 'typestr "|V2"'),
    "no typestr": ({"typestr": ...}, 'has no "typestr"'),
    "fields": ({"descr": [("x", "<f2"), ("y", "<f2")]}, "descr .*expected none"),
    "no shape": ({"shape": ...}, 'has no "shape"'),
    "shape of another type": ({"shape": 6}, "shape 6; expected a tuple"),
    "negative extent": ({"shape": (-1, 3)}, "negative"),
    "overflow": ({"shape": (2**62, 2)}, "address space"),
    "65 dimensions": ({"shape": (1,) * 65}, "65 dimensions"),
    "more strides": ({"strides": (4,)}, r"strides \[4\] for shape \[2, 3\]"),
    "odd strides": ({"strides": (12, 3)}, "itemsize 4"),
    "no data": ({"data": ...}, 'has no "data"'),
    "data without a flag": ({"data": (8,)}, r"data \(8,\); expected"),
    "data that are no pair": ({"data": 8}, "data 8; expected"),
    "address of another type": ({"data": ("8", False)}, "data .*; expected"),
    "negative address": ({"data": (-8, False)}, "data .*; expected"),
    "NULL": ({"data": (0, False)}, "NULL"),
    "stream 0": ({"stream": 0}, r"stream 0; expected None, 1 \(legacy"),
    "stream -1": ({"stream": -1}, "stream -1; expected"),
    "bool as stream": ({"stream": True}, "stream True; expected"),
    "stream of another type": ({"stream": "1"}, "stream '1'; expected"),
    "stream beyond 64 bits": ({"stream": 2**64}, "stream 18446744073709551616; exp"),
}


@pytest.mark.parametrize(("changed", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_dict_is_refused(
    sim: Simulation, changed: dict[str, Any], message: str
) -> None:
    """R63, R148, R152: before a driver is asked, and nothing is kept."""
    shown = Shown(sim.allocate(24), **changed)
    before = sys.getrefcount(shown)
    with pytest.raises(BufferError, match=message):
        dlx.from_dlpack(shown, stream=1)
    assert sys.getrefcount(shown) == before
    assert sim.called() == []


def test_an_attribute_that_is_no_dict_is_refused(sim: Simulation) -> None:
    """R63: the error names the attribute and the type found."""
    shown = Shown(sim.allocate(24))
    shown.interface = [("version", 3)]  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"__cuda_array_interface__ of .* is list"):
        dlx.from_dlpack(shown)


def test_what_the_property_raises_passes_through(sim: Simulation) -> None:
    """R60: an exception of the property, unchanged."""

    class Failing:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dlx.from_dlpack(Failing())


# When it is ready


def test_the_stream_that_was_asked_for_waits_for_the_one_that_is_named(
    sim: Simulation,
) -> None:
    """R148, R149: by one event."""
    memory, p, s = sim.allocate(24), sim.stream(), sim.stream()
    p.write(memory)
    tensor = dlx.from_dlpack(Shown(memory, p), stream=s)
    s.read(memory)
    assert ordered(sim) == ["cuEventRecord", "cuStreamWaitEvent"]
    assert sim.races == []
    assert tensor.stream == s.handle


def test_without_order_there_is_a_race(sim: Simulation) -> None:
    """R76: so that the test above can fail."""
    memory, p, s = sim.allocate(24), sim.stream(), sim.stream()
    p.write(memory)
    tensor = dlx.from_dlpack(Shown(memory, p), stream=-1)
    s.read(memory)
    assert (ordered(sim), tensor.stream) == ([], None)
    assert len(sim.races) == 1


@pytest.mark.parametrize("handle", [LEGACY, PER_THREAD, None])
def test_the_same_stream_needs_no_order(sim: Simulation, handle: int | None) -> None:
    """R81: the legacy, the thread's own, and one of its own."""
    memory = sim.allocate(24)
    p = sim.stream() if handle is None else sim.default_stream(handle)
    tensor = dlx.from_dlpack(Shown(memory, p), stream=p.handle)
    assert set(sim.called()) <= {"cuPointerGetAttribute", "cuCtxGetCurrent"}
    del tensor
    assert set(sim.called()) <= {"cuPointerGetAttribute", "cuCtxGetCurrent"}


@pytest.mark.parametrize("named", [None, ...], ids=["None", "absent"])
@pytest.mark.parametrize("version", [2, 3])
def test_without_a_named_stream_there_is_nothing_to_wait_for(
    sim: Simulation, named: Any, version: int
) -> None:
    """R148: "stream" is None or absent."""
    memory, s = sim.allocate(24), sim.stream()
    shown = Shown(memory, stream=named, version=version)
    assert dlx.from_dlpack(shown).stream is None
    assert dlx.from_dlpack(shown, stream=s).stream == s.handle
    assert "cuStreamWaitEvent" not in sim.called()


def test_without_a_stream_the_point_is_kept_that_the_named_one_has_reached(
    sim: Simulation,
) -> None:
    """H12: no stream waits, until one needs the elements."""
    memory, p, s = sim.allocate(24), sim.stream(), sim.stream()
    p.write(memory)
    tensor = dlx.from_dlpack(Shown(memory, p))
    assert ordered(sim) == ["cuEventRecord"]
    capsule = tensor.__dlpack__(stream=s)
    s.read(memory)
    assert sim.races == []
    del capsule


def test_later_work_of_the_producer_comes_before_an_export_too(
    sim: Simulation,
) -> None:
    """H12: the interface is asked again."""
    memory, p, q, s = sim.allocate(24), sim.stream(), sim.stream(), sim.stream()
    shown = Shown(memory, p)
    tensor = dlx.from_dlpack(shown)
    q.wait_for(p)
    q.write(memory)
    shown.interface["stream"] = q.handle
    capsule = tensor.__dlpack__(stream=s)
    s.read(memory)
    assert sim.races == []
    del capsule


def test_a_stream_of_another_device_is_refused(sim: Simulation) -> None:
    """R86, H7: the interface's memory is on cuda:0, the stream on cuda:1."""
    shown = Shown(sim.allocate(24), sim.stream())
    with pytest.raises(ValueError, match=r"one of cuda:1, but .* on cuda:0"):
        dlx.from_dlpack(shown, stream=sim.stream(device=1))


def test_a_capture_of_the_named_stream_is_not_broken(sim: Simulation) -> None:
    """H6: without a stream nothing has to be joined."""
    memory, p = sim.allocate(24), sim.stream()
    with p.capture():
        p.write(memory)
        dlx.from_dlpack(Shown(memory, p), stream=p)
        dlx.from_dlpack(Shown(memory, p))
        with pytest.raises(BufferError, match="captures a graph"):
            dlx.from_dlpack(Shown(memory, p), stream=sim.stream())


# How it goes back


def test_the_object_is_held(sim: Simulation) -> None:
    """R15, R151: with its memory, and its stream."""
    shown = Shown(sim.allocate(24), sim.stream())
    gone = weakref.ref(shown)
    tensor = dlx.from_dlpack(shown)
    view = tensor.__dlpack__(stream=-1)
    del shown, tensor
    gc.collect()
    assert gone() is not None
    del view
    assert gone() is None


@pytest.mark.parametrize(("release", "races"), [("auto", 0), ("none", 1)])
def test_the_named_stream_waits_for_the_one_that_was_given(
    sim: Simulation, release: Any, races: int
) -> None:
    """R150, H1: when the tensor dies; `arr += 2` comes after the kernel then."""
    memory, p, s = sim.allocate(24), sim.stream(), sim.stream()
    shown = Shown(memory, p)
    tensor = dlx.from_dlpack(shown, stream=s, release=release)
    s.read(memory)
    del tensor
    p.write(memory)
    assert len(sim.races) == races


def test_the_named_stream_waits_and_the_object_is_kept(sim: Simulation) -> None:
    """R150, H4: what comes next on that stream, and on any that memory is taken for."""
    memory, p, s = sim.allocate(24), sim.stream(), sim.stream()
    shown = Shown(memory, p)
    gone = weakref.ref(shown)
    tensor = dlx.from_dlpack(shown, stream=s)
    del shown
    s.read(memory)
    sim.clear_journal()
    del tensor
    assert ordered(sim) == ["cuEventRecord", "cuStreamWaitEvent"]
    assert gone() is not None
    sim.advance()
    until(lambda: gone() is None)


def test_the_default_stream_of_a_thread_waits_for_a_drop_in_another(
    sim: Simulation,
) -> None:
    """R150, H8: by the legacy stream, which it waits for."""
    memory, s = sim.allocate(24), sim.stream()
    p = sim.default_stream(PER_THREAD)
    p.write(memory)
    held = [dlx.from_dlpack(Shown(memory, p), stream=s)]
    s.read(memory)
    in_thread(held.clear)
    p.write(memory)
    assert sim.races == []


def test_the_object_is_held_until_the_stream_is_done_where_none_is_named(
    sim: Simulation,
) -> None:
    """H4: nobody can be made to wait."""
    memory, s = sim.allocate(24), sim.stream()
    shown = Shown(memory)
    gone = weakref.ref(shown)
    tensor = dlx.from_dlpack(shown, stream=s)
    del shown
    s.read(memory)
    del tensor
    assert gone() is not None
    s.synchronize()
    until(lambda: gone() is None)


def test_a_capture_at_the_end_is_not_broken(sim: Simulation) -> None:
    """H6: the stream cannot be waited for; the object is let go."""
    memory, p, s = sim.allocate(24), sim.stream(), sim.stream()
    tensor = dlx.from_dlpack(Shown(memory, p), stream=s)
    with s.capture():
        del tensor
