"""Memory that is let go inside a host function, where no driver can be called."""

from __future__ import annotations

import dlx
from support.cuda_producers import Framework
from support.simulated_driver import Simulation
from support.simulated_kernels import read, settle
from support.simulated_objects import Stream


def test_memory_let_go_in_a_host_function_is_released_later(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H4, H5: 800 does not mean that its stream is done."""
    with library.stream(p):
        array, q = library.full((4,)), sim.stream()
        held = [dlx.from_dlpack(array, stream=s)]
        read(s, held[0])
        array.free()
        q.host_function(held.clear)
        q.synchronize()
        assert held == []
        assert array.deleted == 0
        library.full((4,))
        assert sim.races == []
        settle(sim)
        assert array.deleted == 1


def test_memory_that_waits_is_not_released_in_a_host_function(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H4, H5: an event that cannot be asked has not passed."""
    with library.stream(p):
        arrays, q = [library.full((4,)) for _ in range(3)], sim.stream()
        held = [dlx.from_dlpack(array, stream=s) for array in arrays]
        for tensor in held:
            read(s, tensor)
        del tensor
        held.pop()
        q.host_function(held.clear)
        q.synchronize()
        assert [array.deleted for array in arrays] == [0, 0, 0]
        settle(sim)
        assert [array.deleted for array in arrays] == [1, 1, 1]


def test_no_deleter_runs_in_a_host_function(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H5: it would call a driver that answers 800; what has passed waits, too."""
    with library.stream(p):
        array, q = library.full((4,)), sim.stream()
        held = [dlx.from_dlpack(array, stream=s)]
        read(s, held[0])
        s.synchronize()
        q.host_function(held.clear)
        q.synchronize()
        assert array.deleted == 0
        settle(sim)
        assert array.deleted == 1


def test_memory_of_dlx_let_go_in_a_host_function_is_freed_later(
    sim: Simulation, s: Stream
) -> None:
    """H5: cuMemFreeAsync answers 800 there, which must not lose the memory."""
    with dlx.stream(s):
        before = sim.counts["allocations"]
        held = [dlx.empty(4, "float32", device="cuda:0")]
        q = sim.stream()
        q.host_function(held.clear)
        q.synchronize()
        settle(sim)
        assert sim.counts["allocations"] == before


def test_a_host_function_in_a_capture_holds_up_nothing(
    library: Framework, p: Stream, s: Stream
) -> None:
    """H6: it is a node of the graph."""
    with library.stream(p):
        array = library.full((4,))
        with p.capture():
            p.host_function(lambda: None)
            with dlx.borrow(array, stream=s) as (tensor, stream):
                read(stream, tensor)
