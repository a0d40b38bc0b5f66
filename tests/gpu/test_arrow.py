"""Arrays of Arrow's device interface, behind an event of the driver.

A gate blocks P before it writes NEW over OLD and records the event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import addressof, c_void_p
from importlib import import_module
from typing import Any

import dlx
import pytest

from gpu.captures import capture
from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.released import settle

Show = Callable[..., Any]


@pytest.fixture
def show(gpu: Machine) -> Show:
    """Give what makes an array of the machine's memory, or skip the test."""
    on_device: Any = import_module("support.arrow_structs").OnDevice

    def make(**fields: Any) -> Any:
        return on_device(gpu.memory[1], length=COUNT, **fields)

    return make


@contextmanager
def late_event(gpu: Machine) -> Iterator[int]:
    """Have P write late, and give the address of an event that comes after it."""
    event = gpu.driver.new_event()
    place = c_void_p(event)
    gpu.fill(gpu.memory[1], OLD, gpu.p)
    gpu.synchronize()
    with gpu.gate.closed(gpu.p):
        gpu.fill(gpu.memory[1], NEW, gpu.p)
        gpu.driver.call("cuEventRecord", event, gpu.p.handle)
        yield addressof(place)
    settle(gpu)
    gpu.driver.call("cuEventDestroy_v2", event)


def by_import(gpu: Machine, array: Any) -> dlx.Tensor:
    """Import for S."""
    return dlx.from_dlpack(array, stream=gpu.s)


def by_export(gpu: Machine, array: Any) -> dlx.Tensor:
    """Import without a stream, and export for S."""
    tensor = dlx.from_dlpack(array)
    tensor.__dlpack__(stream=gpu.s.handle, max_version=(1, 3))
    return tensor


def by_neither(gpu: Machine, array: Any) -> dlx.Tensor:
    """Import without order."""
    return dlx.from_dlpack(array, stream=-1)


Way = Callable[[Machine, Any], dlx.Tensor]


def read_of_late_write(gpu: Machine, show: Show, way: Way) -> tuple[float, bool]:
    """Read on S what P has yet to write; return the value, and if S waits."""
    with late_event(gpu) as place:
        tensor = way(gpu, show(sync_event=place))
        read = gpu.read(tensor.data_ptr, gpu.s)
        waits = not gpu.s.settles()
        gpu.gate.open()
        gpu.s.synchronize()
        del tensor
    return one_value(read), waits


@pytest.mark.parametrize("way", [by_import, by_export])
def test_a_stream_waits_for_the_event(gpu: Machine, show: Show, way: Way) -> None:
    """R153: the one of the import, or the one that a consumer names."""
    assert read_of_late_write(gpu, show, way) == (NEW, True)


def test_without_order_no_stream_waits_for_the_event(gpu: Machine, show: Show) -> None:
    """R76, R153: the control."""
    assert read_of_late_write(gpu, show, by_neither) == (OLD, False)


def test_a_block_waits_for_the_event(gpu: Machine, show: Show) -> None:
    """R153: with `dlx.borrow`, too."""
    with late_event(gpu) as place:
        with dlx.borrow(show(sync_event=place), stream=gpu.s) as (view, _):
            read = gpu.read(view.data_ptr, gpu.s)
        gpu.gate.open()
        gpu.s.synchronize()
    assert one_value(read) == NEW


def test_a_copy_to_the_host_waits_for_the_event(gpu: Machine, show: Show) -> None:
    """R55, R153: when the call returns, it has what P has written."""
    with late_event(gpu) as place, gpu.gate.opened_after(0.1):
        copied = dlx.from_dlpack(show(sync_event=place), device="cpu")
    assert one_value(copied.numpy().tolist()) == NEW


def test_an_array_without_an_event_is_ready(gpu: Machine, show: Show) -> None:
    """R153: NULL in place of the pointer; S waits for nothing."""
    with late_event(gpu):
        tensor = dlx.from_dlpack(show(sync_event=None), stream=gpu.s)
        read = gpu.read(tensor.data_ptr, gpu.s)
        assert gpu.s.settles()
    assert one_value(read) == OLD


def test_a_null_event_behind_the_pointer_is_refused(gpu: Machine, show: Show) -> None:
    """R153: it is no event, and the array is released."""
    place = c_void_p(None)
    array = show(sync_event=addressof(place))
    with pytest.raises(BufferError, match="points to a NULL event"):
        dlx.from_dlpack(array, stream=gpu.s)
    assert array.releases == 1


def test_an_array_of_another_device_than_it_says_is_refused(
    gpu: Machine, show: Show
) -> None:
    """R62: the driver knows where the memory is, also if there is no such device."""
    array = show(device_id=1)
    with pytest.raises(BufferError, match="its memory is on cuda:0"):
        dlx.from_dlpack(array)
    assert array.releases == 1


def test_the_array_is_held_until_the_stream_is_done(gpu: Machine, show: Show) -> None:
    """R153, H4: its producer may write to the memory once it is released."""
    array = show()
    with gpu.gate.closed(gpu.s):
        tensor = dlx.from_dlpack(array, stream=gpu.s)
        gpu.read(tensor.data_ptr, gpu.s)
        del tensor
        held = array.releases == 0
        assert not gpu.s.is_done()
    settle(gpu)
    assert held
    assert array.releases == 1


def test_without_order_the_array_is_not_held(gpu: Machine, show: Show) -> None:
    """H4: the control."""
    array = show()
    with gpu.gate.closed(gpu.s):
        tensor = dlx.from_dlpack(array, stream=gpu.s, release="none")
        gpu.read(tensor.data_ptr, gpu.s)
        del tensor
        assert array.releases == 1


def test_a_capture_does_not_wait_for_the_event(gpu: Machine, show: Show) -> None:
    """H6: the event is outside of it; the import is refused, and the capture stays."""
    with late_event(gpu) as place:
        array = show(sync_event=place)
        with capture(gpu, gpu.s), pytest.raises(BufferError, match="captur"):
            dlx.from_dlpack(array, stream=gpu.s)
        assert array.releases == 1


def test_an_event_that_has_passed_can_be_imported_for_a_capture(
    gpu: Machine, show: Show
) -> None:
    """R153: an import before it finds nothing to wait for."""
    with late_event(gpu) as place:
        gpu.gate.open()
        gpu.p.synchronize()
        tensor = dlx.from_dlpack(show(sync_event=place))
        with capture(gpu, gpu.s):
            tensor.__dlpack__(stream=gpu.s.handle, max_version=(1, 3))
        del tensor
