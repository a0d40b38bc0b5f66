"""What copies do to others: captures of other threads, and threads that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.device_arrays import on_device
from support.simulated_driver import Simulation
from support.simulated_kernels import held_elsewhere, refused

GRID = np.arange(6 * 32 * 4, dtype="float32").reshape(6, 32, 4)

MAKES: dict[str, Callable[[Simulation], Callable[[], Any]]] = {}


def copy(function: Callable[[Simulation], Any]) -> Any:
    """Add a kind of copy: what is prepared, and what copies."""
    MAKES[function.__name__] = function
    return function


@copy
def up(sim: Simulation) -> Callable[[], Any]:
    """Host to device."""
    s = sim.stream()
    return lambda: dlx.from_dlpack(GRID, device="cuda:0", stream=s)


@copy
def down(sim: Simulation) -> Callable[[], Any]:
    """Device to host."""
    source = on_device(sim, GRID, stream=sim.stream())
    return lambda: source.to(device="cpu")


@copy
def down_around(sim: Simulation) -> Callable[[], Any]:
    """Device to host, with the memory around the elements."""
    source = on_device(sim, GRID.T, stream=sim.stream())
    return lambda: source.to(device="cpu")


@copy
def down_rows(sim: Simulation) -> Callable[[], Any]:
    """Device to host, by rows."""
    source = on_device(sim, GRID[:, :16], stream=sim.stream())
    return lambda: source.to(device="cpu")


@copy
def within(sim: Simulation) -> Callable[[], Any]:
    """On a device."""
    source, s = on_device(sim, GRID, stream=sim.stream()), sim.stream()
    return lambda: dlx.from_dlpack(source, copy=True, stream=s)


@copy
def by_way_of_the_host(sim: Simulation) -> Callable[[], Any]:
    """On a device, in a layout that no call of the driver copies."""
    source, s = on_device(sim, GRID.T, stream=sim.stream()), sim.stream()
    return lambda: dlx.from_dlpack(source, copy=True, stream=s)


@copy
def across(sim: Simulation) -> Callable[[], Any]:
    """To another device."""
    source, s = dlx.from_dlpack(GRID, device="cuda:0"), sim.stream(1)
    return lambda: dlx.from_dlpack(source, device="cuda:1", stream=s)


@copy
def nothing(sim: Simulation) -> Callable[[], Any]:
    """New memory."""
    return lambda: dlx.empty((4,), "float32", device="cuda:0")


@pytest.mark.parametrize("kind", MAKES)
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread local", "relaxed"])
def test_a_copy_leaves_the_capture_of_another_thread_alone(
    sim: Simulation, kind: str, mode: int
) -> None:
    """H6: the host's waits and pageable copies are unsafe calls to the driver."""
    made, captured = MAKES[kind](sim), sim.stream()

    def begin() -> None:
        sim.use_device(0)
        captured.begin_capture(mode)

    with held_elsewhere(begin, captured.end_capture):
        tensor = made()
    del tensor
    assert sim.races == []


@pytest.mark.parametrize("kind", MAKES)
def test_a_copy_leaves_the_capture_of_its_own_thread_alone(
    sim: Simulation, kind: str
) -> None:
    """H6: on another stream, in the global mode."""
    made, captured = MAKES[kind](sim), sim.stream()
    with captured.capture():
        made()


MAY_BLOCK = {
    *("cuMemcpyAsync", "cuMemcpy2DAsync_v2", "cuMemcpyPeerAsync"),
    *("cuMemAllocAsync", "cuMemFreeAsync", "cuStreamSynchronize", "cuCtxSynchronize"),
}


@pytest.mark.parametrize("kind", MAKES)
def test_no_call_that_may_block_is_made_with_the_interpreter_held(
    sim: Simulation, kind: str
) -> None:
    """What a driver waits for may be a thread of Python (docs/streams.md, How)."""
    made = MAKES[kind](sim)
    sim.clear_journal()
    made()
    called = [call for call in sim.calls() if call.name in MAY_BLOCK]
    assert {call.name for call in called if call.gil} == set()
    assert called


@pytest.mark.parametrize("kind", ["up", "down", "down_around", "within"])
def test_a_copy_on_a_capturing_stream_asks_the_driver_for_nothing(
    sim: Simulation, kind: str
) -> None:
    """H6: it is refused when the driver has said that the stream captures."""
    s = sim.stream()
    view = GRID.T if kind == "down_around" else GRID
    source = on_device(sim, view, stream=s)
    makes: dict[str, Callable[[], Any]] = {
        "up": lambda: dlx.from_dlpack(GRID, device="cuda:0", stream=s),
        "within": lambda: dlx.from_dlpack(source, copy=True, stream=s),
    }
    make = makes.get(kind, lambda: source.to(device="cpu"))
    with s.capture():
        sim.clear_journal()
        with refused(s, match="captures a graph"):
            make()
        assert MAY_BLOCK.isdisjoint(sim.called())
