"""Handles that drivers use again: another stream, or context, with an old address."""

from __future__ import annotations

import dlx
from support.cuda_producers import Framework, TableArray
from support.simulated_contexts import second_context
from support.simulated_driver import Simulation
from support.simulated_kernels import read
from support.simulated_objects import Stream


def replaced(sim: Simulation, stream: Stream) -> Stream:
    """Destroy a stream, and make another, which has its handle."""
    stream.destroy()
    again = sim.stream()
    assert again.handle == stream.handle
    return again


def test_an_export_is_ordered_after_work_of_a_stream_whose_handle_it_has(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H3, H12: what was ready on `p` is not ready on another stream."""
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
    again = replaced(sim, p)
    capsule = tensor.__dlpack__(stream=again.handle)
    read(again, tensor)
    del capsule
    assert sim.races == []


def test_a_use_is_ordered_after_work_of_a_stream_whose_handle_it_has(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H3: the same for a block."""
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
    again = replaced(sim, p)
    with library.stream(again), tensor.use(stream=again) as view:
        read(again, view)
    assert sim.races == []


def test_an_import_of_an_import_is_ordered_after_a_stream_whose_handle_it_has(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H3, H12: dlx in between."""
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
    again = replaced(sim, p)
    read(again, dlx.from_dlpack(tensor, stream=again))
    assert sim.races == []


def test_a_release_does_not_take_a_new_stream_for_the_producers(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H3, H4: the library works on a stream with the handle of the one of before."""
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        array.free()
    again = replaced(sim, p)
    with library.stream(again):
        del tensor
        library.full((4,))
    assert sim.races == []


def test_a_context_with_the_address_of_one_that_is_gone_has_no_events(
    sim: Simulation, array: TableArray
) -> None:
    """H5: events of the one of before are gone with it."""
    for _ in range(3):
        context = second_context(sim)
        s = context.stream()
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        with tensor.use(stream=sim.stream()):
            pass
        s.synchronize()
        del tensor
        sim.advance()
        dlx.from_dlpack(array, stream=sim.stream())
        context.destroy()
    assert sim.races == []
