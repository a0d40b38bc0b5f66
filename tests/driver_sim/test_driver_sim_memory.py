"""Memory of the simulated driver: pools, copies, what pointers are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, byref, c_int32, c_uint64, c_void_p
from typing import Any

import pytest
from support.driver_structures import Copy2d, Copy3d
from support.simulated_driver import Simulation
from support.simulated_objects import DriverError, Memory, Stream
from support.simulated_reports import violated

POISON = b"\xdd"


def test_new_memory_is_poisoned(sim: Simulation) -> None:
    assert sim.allocate(16).content.tobytes() == POISON * 16


def test_a_pool_gives_memory_out_again_at_once_and_poisoned(sim: Simulation) -> None:
    """H4: the free need not be done."""
    a = sim.stream()
    first = a.allocate(16)
    first.content[:] = b"x" * 16
    a.free(first)
    assert first.content.tobytes() == b"x" * 16
    second = a.allocate(12)
    assert second.address == first.address
    assert second.content.tobytes() == POISON * 12
    assert sim.races == []


def test_a_pool_is_of_its_stream(sim: Simulation) -> None:
    a, b = sim.stream(), sim.stream()
    first = a.allocate(16)
    a.free(first)
    assert b.allocate(16).address != first.address


def test_a_pool_has_no_small_blocks_for_large_wishes(sim: Simulation) -> None:
    a = sim.stream()
    first = a.allocate(16)
    a.free(first)
    assert a.allocate(4096).address != first.address


def test_memory_of_a_pool_is_there_in_the_order_of_its_stream(sim: Simulation) -> None:
    a, b = sim.stream(), sim.stream()
    memory = a.allocate(16)
    b.write(memory)
    assert [race.first.what for race in sim.races] == ["cuMemAllocAsync"]


def test_a_free_races_with_use_elsewhere(sim: Simulation) -> None:
    """H4: a free in stream order does not wait for another stream."""
    a, b = sim.stream(), sim.stream()
    memory = a.allocate(16)
    b.wait_for(a)
    b.read(memory)
    a.free(memory)
    [race] = sim.races
    assert (race.first.stream, race.second.what) == (b.handle, "cuMemFreeAsync")


def test_a_free_after_use_elsewhere_is_no_race(sim: Simulation) -> None:
    """H4: the way back."""
    a, b = sim.stream(), sim.stream()
    memory = a.allocate(16)
    b.wait_for(a)
    b.read(memory)
    a.wait_for(b)
    a.free(memory)
    assert sim.races == []


def test_memory_freed_on_the_host_races_with_what_is_queued(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(16)
    a.read(memory)
    memory.free()
    assert [race.second.what for race in sim.races] == ["cuMemFree_v2"]


def test_memory_freed_on_the_host_after_waiting_is_no_race(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(16)
    a.read(memory)
    a.synchronize()
    memory.free()
    assert sim.races == []


def test_a_kernel_on_freed_memory_is_a_violation(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(16)
    memory.free()
    a.read(memory)
    assert violated(sim) == ["sim_launch on freed memory"]


def test_a_kernel_past_its_memory_is_a_violation(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(16)
    a.launch(False, memory.address, 17)
    a.launch(False, 0x1000, 1)
    assert violated(sim) == [
        "sim_launch on memory past an allocation",
        "sim_launch on memory that was not allocated",
    ]


def test_a_second_free_is_a_violation(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(16)
    memory.free()
    with pytest.raises(DriverError, match="cuMemFreeAsync: 1"):
        a.free(memory)
    assert sim.violations[0].what.startswith("second free")


def test_a_free_of_something_else_is_a_violation(sim: Simulation) -> None:
    assert sim.answer("cuMemFree_v2", sim.allocate(16).address + 1) == 1
    assert sim.violations[0].what.startswith("free of")


def test_the_host_may_use_memory_of_its_own(sim: Simulation) -> None:
    sim.host_write(addressof(ctypes.create_string_buffer(8)), 8)
    assert sim.violations == []


# Copies.

COPIES: dict[str, Callable[[Memory, Memory, Stream], tuple[Any, ...]]] = {
    name: lambda target, source, a: (target.address, source.address, 4, a.handle)
    for name in (
        "cuMemcpyAsync",
        "cuMemcpyDtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
    )
}
COPIES["cuMemcpyPeerAsync"] = lambda target, source, a: (
    *(target.address, a.sim.context(0), source.address, a.sim.context(0)),
    *(4, a.handle),
)
COPIES["hipMemcpyAsync"] = lambda target, source, a: (
    *(target.address, source.address, 4, 3, a.handle),
)


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_moves_bytes_on_its_stream(sim: Simulation, name: str) -> None:
    a, source, target = sim.stream(), sim.allocate(8), sim.allocate(8)
    source.content[:] = b"abcdefgh"
    sim.call(name, *COPIES[name](target, source, a))
    assert target.content.tobytes() == b"abcd" + POISON * 4
    sim.host_write(source.address, 8)
    sim.host_read(target.address, 8)
    assert [race.first.write for race in sim.races] == [False, True]


def test_a_copy_to_the_host_has_to_be_waited_for(sim: Simulation) -> None:
    """R50: no host memory is pageable here."""
    a, source, target = sim.stream(), sim.allocate(8), ctypes.create_string_buffer(8)
    copy = ("cuMemcpyDtoHAsync_v2", addressof(target), source.address, 8, a.handle)
    sim.call(*copy)
    sim.host_read(addressof(target), 8)
    assert len(sim.races) == 1
    a.synchronize()
    sim.call(*copy)
    a.synchronize()
    sim.host_read(addressof(target), 8)
    assert len(sim.races) == 1


def test_a_copy_out_of_bounds_is_refused(sim: Simulation) -> None:
    a, source, target = sim.stream(), sim.allocate(8), sim.allocate(4)
    assert sim.answer("cuMemcpyAsync", target.address, source.address, 8, a.handle) == 1
    assert violated(sim) == ["cuMemcpyAsync on memory past an allocation"]


def test_a_fill_writes(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(8)
    sim.call("cuMemsetD8Async", memory.address, 7, 4, a.handle)
    assert memory.content.tobytes() == b"\x07" * 4 + POISON * 4
    b.launch(False, memory.address + 4, 4)
    assert sim.races == []
    b.read(memory)
    assert len(sim.races) == 1


def test_rows_are_copied_by_pitch(sim: Simulation) -> None:
    a, source, target = sim.stream(), sim.allocate(12), ctypes.create_string_buffer(6)
    source.content[:] = b"abcdefghijkl"
    copy = Copy2d(
        srcMemoryType=2, srcDevice=source.address, srcPitch=4, srcXInBytes=1,
        dstMemoryType=1, dstHost=addressof(target), dstPitch=2,
        WidthInBytes=2, Height=3,
    )  # fmt: skip
    sim.call("cuMemcpy2DAsync_v2", byref(copy), a.handle)
    assert target.raw == b"bcfgjk"


@pytest.mark.parametrize(("kind", "code"), [(1, 0), (4, 1)])
def test_rows_of_pageable_memory_are_named_as_such(
    sim: Simulation, kind: int, code: int
) -> None:
    """Memory of type "unified" is the driver's."""
    a, source, target = sim.stream(), sim.allocate(12), ctypes.create_string_buffer(6)
    copy = Copy2d(
        srcMemoryType=4, srcDevice=source.address, srcPitch=4,
        dstMemoryType=kind, dstHost=addressof(target), dstDevice=addressof(target),
        dstPitch=2, WidthInBytes=2, Height=3,
    )  # fmt: skip
    assert sim.answer("cuMemcpy2DAsync_v2", byref(copy), a.handle) == code


def test_rows_leave_the_gaps_alone(sim: Simulation) -> None:
    a, b, source, target = sim.stream(), sim.stream(), sim.allocate(8), sim.allocate(4)
    arguments = (target.address, 2, source.address, 4, 2, 2, 3, a.handle)
    sim.call("hipMemcpy2DAsync", *arguments)
    b.launch(True, source.address + 2, 2)
    assert sim.races == []
    b.launch(True, source.address + 5, 1)
    assert len(sim.races) == 1


def test_planes_are_copied_by_height(sim: Simulation) -> None:
    a, source, target = sim.stream(), sim.allocate(24), sim.allocate(8)
    source.content[:] = bytes(range(24))
    copy = Copy3d(
        srcMemoryType=2, srcDevice=source.address, srcPitch=4, srcHeight=3, srcY=1,
        dstMemoryType=2, dstDevice=target.address, dstPitch=2, dstHeight=2,
        WidthInBytes=2, Height=2, Depth=2,
    )  # fmt: skip
    sim.call("cuMemcpy3DAsync_v2", byref(copy), a.handle)
    assert list(target.content.tobytes()) == [4, 5, 8, 9, 16, 17, 20, 21]


def test_copies_of_a_capture_do_not_happen(sim: Simulation) -> None:
    a, source, target = sim.stream(), sim.allocate(4), sim.allocate(4)
    source.content[:] = b"abcd"
    with a.capture():
        sim.call("cuMemcpyAsync", target.address, source.address, 4, a.handle)
    assert target.content.tobytes() != b"abcd"


# Captures.


@pytest.mark.parametrize("up", [True, False])
def test_a_copy_of_pinned_memory_breaks_no_capture(sim: Simulation, up: bool) -> None:
    """Nothing is staged, unlike for pageable memory."""
    a, b = sim.stream(), sim.stream()
    memory = [sim.allocate(8).address, sim.allocate(8, kind="pinned").address]
    target, source = memory if up else reversed(memory)
    with a.capture():
        sim.call("cuMemcpyAsync", target, source, 8, b.handle)


def test_a_pageable_copy_is_captured(sim: Simulation) -> None:
    """On the stream that captures: a node (pytorch/pytorch#172156)."""
    a, memory, host = sim.stream(), sim.allocate(8), ctypes.create_string_buffer(8)
    with a.capture():
        sim.call("cuMemcpyAsync", memory.address, addressof(host), 8, a.handle)


def test_a_capture_frees_no_memory_from_outside(sim: Simulation) -> None:
    """`cuMemFreeAsync` in a capture takes an allocation of the graph."""
    a = sim.stream()
    memory = a.allocate(8)
    a.begin_capture()
    with pytest.raises(DriverError, match="cuMemFreeAsync: 1"):
        a.free(memory)
    a.end_capture()


# Pointers.

CONTEXT, MEMORY_TYPE, IS_MANAGED, ORDINAL = 1, 2, 8, 9


def attributes(sim: Simulation, address: int) -> tuple[int, int, int, int]:
    """Context, memory type, whether it is managed, and device."""
    kinds = (c_int32 * 4)(CONTEXT, MEMORY_TYPE, IS_MANAGED, ORDINAL)
    context, integers = c_uint64(), [c_int32() for _ in range(3)]
    places = (c_void_p * 4)(addressof(context), *map(addressof, integers))
    sim.call("cuPointerGetAttributes", 4, kinds, places, address)
    return (context.value, *(integer.value for integer in integers))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "memory_type", "managed"),
    [("device", 2, 0), ("pinned", 1, 0), ("managed", 2, 1)],
)
def test_a_pointer_says_what_it_is(
    sim: Simulation, kind: str, memory_type: int, managed: int
) -> None:
    address = sim.allocate(8, 1, kind=kind).address + 3
    assert attributes(sim, address) == (sim.context(1), memory_type, managed, 1)
    place = c_int32()
    sim.call("cuPointerGetAttribute", byref(place), ORDINAL, address)
    assert place.value == 1


def test_a_strange_pointer_is_no_error(sim: Simulation) -> None:
    """For `cuPointerGetAttributes`, unlike `cuPointerGetAttribute`."""
    assert attributes(sim, 0x1000) == (0, 0, 0, -2)
    place = c_int32()
    assert sim.answer("cuPointerGetAttribute", byref(place), ORDINAL, 0x1000) == 1


def test_nobody_knows_what_a_freed_pointer_is(sim: Simulation) -> None:
    """The attributes of memory freed in stream order are undefined."""
    a = sim.stream()
    memory = a.allocate(8)
    a.free(memory)
    attributes(sim, memory.address)
    assert violated(sim) == ["attributes of freed memory"]
