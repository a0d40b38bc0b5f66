"""The caching allocator of the fake frameworks, without dlx: what it races with."""

from __future__ import annotations

import pytest
from support.cuda_producers import Framework, TableArray, framework
from support.simulated_driver import Simulation
from support.simulated_objects import DriverError


@pytest.fixture
def library(sim: Simulation) -> Framework:
    """Give a framework with arrays of its own."""
    return framework(TableArray, "allocating")


@pytest.mark.parametrize("joined", [False, True])
def test_a_block_returns_to_the_stream_that_it_was_allocated_on(
    sim: Simulation, library: Framework, joined: bool
) -> None:
    """H4: its array is used and freed on another, which that one need not know of."""
    home, current = sim.stream(), sim.stream()
    with library.stream(current):
        array = library.full((4,), home=home)
        address = array.data
        if joined:
            home.wait_for(current)
        array.free()
    with library.stream(home):
        again = library.full((4,))
    assert again.data == address
    assert (sim.races == []) == joined


def test_a_block_waits_for_recorded_streams(
    sim: Simulation, library: Framework
) -> None:
    """H4: `record_stream` is what tells the allocator of another stream."""
    home, current = sim.stream(), sim.stream()
    with library.stream(current):
        array = library.full((4,), home=home)
        array.record_stream(current)
        address = array.data
        array.free()
    with library.stream(home):
        assert library.full((4,)).data != address
        sim.advance()
        assert library.full((4,)).data == address
    assert sim.races == []


def test_an_emptied_cache_breaks_a_capture(sim: Simulation, library: Framework) -> None:
    """H6: it calls cuMemFree."""
    s = sim.stream()
    with library.stream(sim.stream()):
        library.full((4,)).free()
    sim.advance()
    sim.call("cuCtxSynchronize")
    s.begin_capture()
    with pytest.raises(DriverError, match="cuMemFree_v2: 900"):
        library.allocator.empty_cache()
    assert s.capture_status() == 2


def test_an_emptied_cache_gives_memory_back(
    sim: Simulation, library: Framework
) -> None:
    before = sim.counts["allocations"]
    with library.stream(sim.stream()):
        library.full((4,)).free()
    assert sim.counts["allocations"] == before + 1
    sim.call("cuCtxSynchronize")
    library.allocator.empty_cache()
    assert sim.counts["allocations"] == before
    assert sim.races == []
