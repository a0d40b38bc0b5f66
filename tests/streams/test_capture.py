"""Captures of graphs: what joins them, and what dlx refuses before it breaks one.

The cases are those of the table in docs/streams.md, Graphs. `Stream.capture` ends the
capture, which raises if something has broken it (H6).
"""

from __future__ import annotations

import dlx
import pytest
from support.cuda_producers import Framework, TableArray
from support.simulated_driver import Simulation
from support.simulated_kernels import read, refused, write
from support.simulated_objects import (
    GLOBAL,
    RELAXED,
    THREAD_LOCAL,
    DriverError,
    Stream,
)

pytestmark = pytest.mark.usefixtures("running")

MODES = pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])


@MODES
def test_the_same_stream_needs_nothing(
    sim: Simulation, array: TableArray, p: Stream, mode: int
) -> None:
    """H6: no call of the driver, which is how `borrow` works in a capture."""
    with p.capture(mode):
        sim.clear_journal()
        with dlx.borrow(array) as (tensor, stream):
            write(stream, tensor)
        imported = dlx.from_dlpack(array, stream=p)
        read(p, imported)
        del imported
        assert sim.called() == []
    assert sim.races == []


@MODES
def test_streams_that_do_not_capture_are_ordered_beside_a_capture(
    sim: Simulation, array: TableArray, p: Stream, s: Stream, mode: int
) -> None:
    """H6: while another stream of this thread captures."""
    with sim.stream().capture(mode):
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        with tensor.use(stream=p):
            pass
        del tensor
    assert sim.races == []


@MODES
def test_streams_of_one_capture_are_ordered_in_its_graph(
    sim: Simulation, array: TableArray, p: Stream, s: Stream, mode: int
) -> None:
    """H6: an event between them is an edge of the graph."""
    with p.capture(mode):
        s.wait_for(p)
        array += 1
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        del tensor
        p.wait_for(s)
        array += 1
    assert sim.races == []


def test_an_import_does_not_draw_a_stream_into_a_capture(
    array: TableArray, p: Stream, s: Stream
) -> None:
    """H6: nothing would join it back (904)."""
    with p.capture(), refused(p, s, match=r"904\); use dlx.borrow or Tensor.use"):
        dlx.from_dlpack(array, stream=s)


def test_an_export_does_not_draw_a_stream_into_a_capture(
    array: TableArray, p: Stream, s: Stream
) -> None:
    """H6: nothing would join it back (904)."""
    tensor = dlx.from_dlpack(array, stream=p)
    with p.capture(), refused(p, s, match="904"):
        tensor.__dlpack__(stream=s.handle)


@MODES
def test_a_borrow_draws_a_stream_into_a_capture_and_joins_it_back(
    sim: Simulation, array: TableArray, p: Stream, s: Stream, mode: int
) -> None:
    """H6: the producer's stream captures, the borrower's does not."""
    with p.capture(mode):
        array += 1
        with dlx.borrow(array, stream=s) as (tensor, stream):
            assert s.capture_status() == 1
            write(stream, tensor)
        array += 1
    assert s.capture_status() == 0
    assert sim.races == []


def test_a_use_draws_a_stream_into_a_capture_and_joins_it_back(
    sim: Simulation, array: TableArray, p: Stream, s: Stream
) -> None:
    """H6: of a tensor that was imported on the stream that captures."""
    kept = dlx.from_dlpack(array, stream=p)
    with p.capture():
        array += 1
        with kept.use(stream=s) as tensor:
            write(s, tensor)
        array += 1
    assert sim.races == []


def test_a_borrow_whose_body_raises_joins_back(
    array: TableArray, p: Stream, s: Stream
) -> None:
    """H6: the capture could not end otherwise (904)."""
    with p.capture():
        block = dlx.borrow(array, stream=s)
        tensor, stream = block.__enter__()
        write(stream, tensor)
        block.__exit__(KeyError, KeyError(), None)


def test_a_borrow_that_fails_at_the_second_tensor_joins_the_first_back(
    array: TableArray, p: Stream, s: Stream
) -> None:
    """H6: what was given to the stream for the first tensor is joined as well."""
    with p.capture(), pytest.raises(AttributeError):
        dlx.borrow(array, object(), stream=s).__enter__()
    assert s.capture_status() == 0


@pytest.mark.parametrize("is_drawn_in", [True, False])
def test_a_block_is_not_left_in_a_capture_that_began_inside_it(
    array: TableArray, p: Stream, s: Stream, is_drawn_in: bool
) -> None:
    """H6: an edge of the graph orders nothing that was queued before."""
    block = dlx.borrow(array, stream=s)
    tensor, stream = block.__enter__()
    write(stream, tensor)
    with s.capture():
        if is_drawn_in:
            p.wait_for(s)
        with refused(s, match="leave the block before the capture begins"):
            block.__exit__(None, None, None)
        if is_drawn_in:
            s.wait_for(p)


def test_memory_used_before_a_capture_is_freed_after_that_use(
    sim: Simulation, p: Stream, s: Stream
) -> None:
    """H3: also where its own stream was in the capture when the block was left."""
    with dlx.stream(p):
        tensor = dlx.empty(4, "float32", device="cuda:0")
    block = tensor.use(stream=s)
    write(s, block.__enter__())
    with s.capture():
        p.wait_for(s)
        with pytest.raises(BufferError, match="before stream"):
            block.__exit__(None, None, None)
        s.wait_for(p)
    del tensor, block
    assert sim.races == []


@pytest.mark.parametrize("way", ["import", "export", "borrow", "use"])
def test_work_outside_is_not_waited_for_in_a_capture(
    array: TableArray, p: Stream, s: Stream, way: str
) -> None:
    """H6: refused (905) before the driver is asked to wait."""
    tensor = dlx.from_dlpack(array)
    with s.capture(), refused(p, s, match=r"905\); import .*, or pass stream=-1"):
        if way == "import":
            dlx.from_dlpack(array, stream=s)
        elif way == "export":
            tensor.__dlpack__(stream=s.handle)
        elif way == "borrow":
            dlx.borrow(array, stream=s).__enter__()
        else:
            tensor.use(stream=s).__enter__()


def test_without_order_a_tensor_comes_into_a_capture(
    array: TableArray, s: Stream
) -> None:
    """H6, R76: `stream=-1`, which the error names, works."""
    with s.capture():
        read(s, dlx.from_dlpack(array, stream=-1))
        with dlx.borrow(array, stream=-1) as (tensor, _):
            read(s, tensor)


def test_work_that_is_done_is_not_waited_for_in_a_capture(
    sim: Simulation, library: Framework, array: TableArray, s: Stream
) -> None:
    """H6: a tensor that was ready before the capture may be used in it."""
    other = sim.stream()
    tensor = dlx.from_dlpack(array)
    tensor.synchronize()
    with s.capture(), library.stream(s):
        tensor.__dlpack__(stream=s.handle)
    assert other.capture_status() == 0


def test_two_captures_are_not_merged(array: TableArray, p: Stream, s: Stream) -> None:
    """H6: a wait between them would end both (902)."""
    with p.capture(), s.capture():
        with refused(p, s, match=r"902\); capture both into one"):
            dlx.from_dlpack(array, stream=s)
        with refused(p, s, match="902"):
            dlx.borrow(array, stream=s).__enter__()


def test_a_tensor_that_is_ready_in_a_capture_stays_there(
    sim: Simulation, library: Framework, array: TableArray, p: Stream, s: Stream
) -> None:
    """H6: during the capture (904), and when it has ended."""
    with p.capture():
        tensor = dlx.from_dlpack(array)
        with (
            library.stream(sim.stream()),
            refused(p, s, match="inside the capture"),
        ):
            tensor.__dlpack__(stream=s.handle)
    with library.stream(sim.stream()), refused(s, match="inside the capture"):
        tensor.__dlpack__(stream=s.handle)


@pytest.mark.parametrize("blocking", [True, False])
def test_the_legacy_stream_is_not_used_beside_the_capture_of_a_blocking_stream(
    sim: Simulation, library: Framework, s: Stream, blocking: bool
) -> None:
    """H6: the producer works on the legacy stream (906)."""
    captured = sim.stream(blocking=blocking)
    array = library.full((4,))
    with captured.capture():
        if blocking:
            with refused(captured, s, match=r"906\); capture with the tensor's own"):
                dlx.from_dlpack(array, stream=s)
            with refused(captured, match="906"):
                dlx.from_dlpack(array)
        else:
            read(s, dlx.from_dlpack(array, stream=s))
    assert sim.races == []


def test_the_legacy_stream_does_not_wait_beside_the_capture_of_a_blocking_stream(
    sim: Simulation, array: TableArray, p: Stream
) -> None:
    """H6, R72: the consumer's stream is the legacy one (906), which None means too."""
    captured = sim.stream(blocking=True)
    tensor = dlx.from_dlpack(array)
    with captured.capture():
        with refused(captured, p, match="906"):
            tensor.__dlpack__()
        with refused(captured, p, match="906"):
            tensor.__dlpack__(stream=1)


def test_a_capture_that_has_failed_is_said_to_have(
    array: TableArray, p: Stream, s: Stream
) -> None:
    """H6: another one broke it (901)."""
    p.begin_capture()
    assert p.answer("cuStreamQuery", p.handle) == 900
    with refused(p, s, match=r"has failed \(901\); end it first"):
        dlx.from_dlpack(array, stream=s)
    with pytest.raises(DriverError, match="901"):
        p.end_capture()
