"""Blocks that begin or end while a stream captures: nothing is broken or forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework, TableArray, framework
from support.simulated_contexts import Context, green_context, second_context
from support.simulated_driver import Simulation
from support.simulated_kernels import read, refused, write
from support.simulated_objects import LEGACY, Stream


def own(stream: Stream) -> dlx.Tensor:
    """Memory of dlx on a stream, which is freed there."""
    with dlx.stream(stream):
        return dlx.empty(4, "float32", device="cuda:0")


def lent(library: Framework, p: Stream) -> dlx.Tensor:
    """Memory of dlx on a stream that only its library names."""
    with library.stream(p):
        dlx.from_dlpack(library.full((2,)), stream=-1)
        return dlx.empty(4, "float32", device="cuda:0")


def used(sim: Simulation, tensor: dlx.Tensor, s: Stream) -> None:
    """Write on a stream in a block whose end a capture forbids."""
    p = tensor.stream
    assert p is not None
    block = tensor.use(stream=s)
    write(s, block.__enter__())
    stream = Stream(sim, p.handle)
    stream.begin_capture()
    with refused(stream, match="905"):
        block.__exit__(None, None, None)
    stream.end_capture()


def test_memory_is_not_freed_under_a_kernel_of_a_block_whose_end_was_forbidden(
    sim: Simulation, p: Stream, s: Stream
) -> None:
    """H4, H6: an error of `use` does not mean that its kernel is done."""
    tensor = own(p)
    used(sim, tensor, s)
    del tensor
    own(p)
    assert sim.races == []


def test_an_export_waits_for_a_block_whose_end_was_forbidden(
    sim: Simulation, p: Stream, s: Stream
) -> None:
    """H6, H12: whoever gets the tensor next waits for its kernel."""
    tensor, consumer = own(p), sim.stream()
    used(sim, tensor, s)
    tensor.__dlpack__(stream=consumer.handle)
    read(consumer, tensor)
    assert sim.races == []
    sim.call("cuCtxSynchronize")


def test_the_end_of_a_block_is_known_whose_stream_captures_by_then(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H4, H6: the kernel was queued before the capture, and runs."""

    def run() -> None:
        sim.use_device(0)
        tensor = lent(library, p)
        with tensor.use(stream=s) as view:
            write(s, view)
            s.begin_capture()
        s.end_capture()
        with library.stream(p):
            del tensor, view
            dlx.empty(4, "float32", device="cuda:0")

    in_thread(run)
    assert sim.races == []


def test_the_end_of_a_block_on_the_legacy_stream_breaks_no_capture(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H6: nothing is recorded, which would be a 906, and the tensor remembers that."""
    blocking = sim.stream(blocking=True)

    def run() -> None:
        sim.use_device(0)
        tensor = lent(library, p)
        block = tensor.use(stream=LEGACY)
        block.__enter__()
        with blocking.capture():
            block.__exit__(None, None, None)
        with library.stream(p):
            del tensor, block
            dlx.empty(4, "float32", device="cuda:0")

    in_thread(run)


@pytest.mark.parametrize("eager_first", [False, True])
def test_a_borrow_of_a_captured_and_another_tensor_is_refused_before_it_begins(
    sim: Simulation, p: Stream, s: Stream, eager_first: bool
) -> None:
    """H6: in either order, and the block's stream has not joined the capture."""
    one, other = framework(TableArray, "one"), framework(TableArray, "other")
    with one.stream(p), other.stream(sim.stream()):
        captured, eager = one.full((4,)), other.full((4,))
        arrays = [eager, captured] if eager_first else [captured, eager]
        with p.capture(), refused(p, s, match="905"):
            dlx.borrow(*arrays, stream=s).__enter__()


@pytest.mark.parametrize("make", [second_context, green_context])
def test_a_stream_of_another_context_is_joined_back_to_a_capture(
    sim: Simulation,
    library: Framework,
    p: Stream,
    make: Callable[[Simulation], Context],
) -> None:
    """H6, H7: its event is one of its own context, in a capture, too."""
    s = make(sim).stream()
    with library.stream(p):
        array = library.full((4,))
        with p.capture(), dlx.borrow(array, stream=s) as (tensor, stream):
            write(stream, tensor)


def test_a_use_of_a_tensor_whose_import_died_in_a_capture_is_refused(
    sim: Simulation, p: Stream, s: Stream
) -> None:
    """H5, H6: the import's stream captures, so that nothing could be recorded."""
    q = sim.stream()
    tensor = own(p)
    again = dlx.from_dlpack(tensor, stream=q)
    with q.capture():
        del again
        with refused(p, q, s, match="used the tensor before"):
            tensor.use(stream=s).__enter__()


def test_a_borrow_in_a_capture_records_nothing_that_it_does_not_use(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H6: an event in a capture ends no use, so it is not asked for."""

    def run() -> list[str]:
        sim.use_device(0)
        tensor = lent(library, p)
        block = tensor.use(stream=s)
        block.__enter__()
        with s.capture():
            sim.clear_journal()
            block.__exit__(None, None, None)
            called = sim.called()
        with library.stream(p):
            del tensor, block
            dlx.empty(4, "float32", device="cuda:0")
        return called

    assert "cuEventRecord" not in in_thread(run)


@pytest.mark.parametrize("lend", [dlx.Tensor.use, dlx.borrow])
def test_an_export_after_a_refused_block_waits_for_earlier_uses(
    sim: Simulation,
    library: Framework,
    p: Stream,
    s: Stream,
    lend: Callable[..., dlx.borrow[Any]],
) -> None:
    """H6, H12: the refused block has not waited for them."""
    captured, consumer = sim.stream(), sim.stream()

    def run() -> None:
        sim.use_device(0)
        tensor = lent(library, p)
        with tensor.use(stream=s) as view:
            write(s, view)
        with captured.capture(), refused(captured, match="905"):
            lend(tensor, stream=captured).__enter__()
        tensor.__dlpack__(stream=consumer.handle)
        read(consumer, tensor)
        sim.call("cuCtxSynchronize")

    in_thread(run)
    assert sim.races == []


def test_memory_is_not_freed_under_a_use_before_a_refused_block(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H4, H6: the same for the release."""
    captured = sim.stream()

    def run() -> None:
        sim.use_device(0)
        tensor = lent(library, p)
        with tensor.use(stream=s) as view:
            write(s, view)
        with captured.capture(), refused(captured, match="905"):
            tensor.use(stream=captured).__enter__()
        del view
        with library.stream(p):
            del tensor
            for _ in range(3):
                dlx.empty(4, "float32", device="cuda:0")
                captured.advance()

    in_thread(run)
    assert sim.races == []
