"""The simulated driver's rules of reach: which device uses whose memory."""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_int32, c_uint64
from typing import Any

import pytest
from support.driver_structures import Copy3d
from support.simulated_driver import Simulation
from support.simulated_objects import Memory, Stream
from support.simulated_reports import violated

INVALID_VALUE, NOT_ENABLED = 1, 705


def on(device: int, sim: Simulation, kind: str) -> Memory:
    """Allocate on a device, or in the pool of a stream of it."""
    if kind == "pool":
        with sim.on_device(device):
            return sim.stream(device).allocate(8)
    return sim.allocate(8, device, kind=kind)


def copy(sim: Simulation, target: Memory, source: Memory, stream: Stream) -> int:
    """Copy without naming a device; the stream's is current."""
    call = (target.address, source.address, 8, stream.handle)
    with sim.on_device(stream.device):
        return sim.answer("cuMemcpyAsync", *call)


@pytest.mark.parametrize("kind", ["device", "pool", "managed", "pinned"])
def test_a_kernel_reaches_memory_of_its_device(sim: Simulation, kind: str) -> None:
    sim.stream(1).read(on(1, sim, kind))
    assert sim.violations == []


@pytest.mark.parametrize(
    ("kind", "reached"),
    [("device", False), ("pool", False), ("managed", True), ("pinned", True)],
)
def test_a_kernel_reaches_only_some_memory_of_another_device(
    sim: Simulation, kind: str, reached: bool
) -> None:
    """Pinned memory is portable under unified addressing."""
    sim.stream(0).read(on(1, sim, kind))
    out = ["sim_launch on memory of device 1, out of reach,"]
    assert violated(sim) == ([] if reached else out)


@pytest.mark.parametrize(("kind", "reached"), [("device", True), ("pool", False)])
def test_peer_access_is_for_memory_outside_pools(
    sim: Simulation, kind: str, reached: bool
) -> None:
    """In both directions here; `cuCtxEnablePeerAccess` grants one."""
    sim.enable_peers()
    sim.stream(0).read(on(1, sim, kind))
    assert (sim.violations == []) == reached


@pytest.mark.parametrize(("kind", "reached"), [("device", False), ("pool", True)])
def test_pool_access_is_for_memory_of_the_pool(
    sim: Simulation, kind: str, reached: bool
) -> None:
    sim.open_pool(1, to=0)
    sim.stream(0).read(on(1, sim, kind))
    assert (sim.violations == []) == reached


def test_peer_access_has_one_direction(sim: Simulation) -> None:
    sim.call("cuCtxEnablePeerAccess", sim.context(1), 0)
    sim.stream(1).read(sim.allocate(8, 0))
    assert len(sim.violations) == 1
    sim.call("cuCtxDisablePeerAccess", sim.context(1))
    assert sim.answer("cuCtxDisablePeerAccess", sim.context(1)) == NOT_ENABLED


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("device", "device", 0),
        ("managed", "device", 0),
        ("pool", "device", INVALID_VALUE),
        ("device", "pool", 0),
        ("pool", "pool", INVALID_VALUE),
    ],
)
def test_a_copy_that_names_no_device_does_not_reach_pools_elsewhere(
    sim: Simulation, source: str, target: str, code: int
) -> None:
    """From device 0 to 1, on a stream of 1 (alpaka-group/alpaka#1909)."""
    memory = on(0, sim, source), on(1, sim, target)
    assert copy(sim, memory[1], memory[0], sim.stream(1)) == code
    assert sim.violations == []


def test_the_current_context_has_to_reach_the_pool_too(sim: Simulation) -> None:
    """As the reproducer of alpaka-group/alpaka#1909 says of the current device."""
    memory, s, place = on(1, sim, "pool"), sim.stream(1), (ctypes.c_char * 8)()
    call = ("cuMemcpyAsync", addressof(place), memory.address, 8, s.handle)
    assert sim.answer(*call) == INVALID_VALUE
    with sim.on_device(1):
        assert sim.answer(*call) == 0


def test_pool_access_lets_such_a_copy_pass(sim: Simulation) -> None:
    source, target = on(0, sim, "pool"), on(1, sim, "pool")
    sim.open_pool(0, to=1)
    assert copy(sim, target, source, sim.stream(1)) == 0


@pytest.mark.parametrize("source", ["device", "pool"])
@pytest.mark.parametrize("target", ["device", "pool"])
@pytest.mark.parametrize("device", [0, 1])
def test_a_copy_between_peers_always_passes(
    sim: Simulation, source: str, target: str, device: int
) -> None:
    """On a stream of either, whoever reaches whom."""
    memory = on(0, sim, source), on(1, sim, target)
    memory[0].content[:] = b"abcdefgh"
    call: list[Any] = [memory[1].address, sim.context(1)]
    call += [memory[0].address, sim.context(0), 8, sim.stream(device).handle]
    sim.call("cuMemcpyPeerAsync", *call)
    assert memory[1].content.tobytes() == b"abcdefgh"


def test_rows_between_peers_pass(sim: Simulation) -> None:
    source, target = on(0, sim, "pool"), on(1, sim, "pool")
    source.content[:] = b"abcdefgh"
    copy = Copy3d(
        srcMemoryType=2, srcDevice=source.address, srcPitch=4,
        srcReserved=sim.context(0),
        dstMemoryType=2, dstDevice=target.address, dstPitch=2,
        dstReserved=sim.context(1),
        WidthInBytes=2, Height=2, Depth=1,
    )  # fmt: skip
    sim.call("cuMemcpy3DPeerAsync", byref(copy), sim.stream(1).handle)
    assert target.content.tobytes()[:4] == b"abef"


def test_a_copy_between_peers_needs_the_right_contexts(sim: Simulation) -> None:
    source, target = on(0, sim, "device"), on(1, sim, "device")
    call: list[Any] = [target.address, sim.context(0), source.address]
    call += [sim.context(1), 8, sim.stream().handle]
    assert sim.answer("cuMemcpyPeerAsync", *call) == INVALID_VALUE


def test_hip_copies_between_devices_by_number(sim: Simulation) -> None:
    memory = []
    for device in (0, 1):
        sim.call("hipSetDevice", device)
        stream = sim.stream(device, hip=True)
        memory.append(stream.allocate(8))
    sim.call("hipSetDevice", 0)
    copy = (memory[1].address, memory[0].address, 8, 4, stream.handle)
    assert sim.answer("hipMemcpyAsync", *copy) == INVALID_VALUE
    call: tuple[Any, ...] = (memory[1].address, 1, memory[0].address, 0)
    sim.call("hipMemcpyPeerAsync", *call, 8, stream.handle)


@pytest.mark.parametrize("kind", ["device", "pool"])
def test_the_host_does_not_reach_memory_of_a_device(sim: Simulation, kind: str) -> None:
    sim.host_read(on(0, sim, kind).address, 8)
    assert violated(sim) == ["the host on memory of a device"]


@pytest.mark.parametrize("kind", ["managed", "pinned"])
def test_the_host_reaches_pinned_and_managed_memory(sim: Simulation, kind: str) -> None:
    sim.host_write(on(0, sim, kind).address, 8)
    assert sim.violations == []


def test_memory_of_a_pool_is_of_its_device_and_of_no_context(sim: Simulation) -> None:
    """What UCX relies on; nothing documents it."""
    memory, context, device = on(1, sim, "pool"), c_uint64(7), c_int32()
    sim.call("cuPointerGetAttribute", byref(context), 1, memory.address)
    sim.call("cuPointerGetAttribute", byref(device), 9, memory.address)
    assert (context.value, device.value) == (0, 1)
