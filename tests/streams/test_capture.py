"""Captures of graphs: what joins them, and what dlx refuses before it breaks one.

The rows are those of streams.md B.6. A capture that something has broken ends with an
error, so each test ends its own.
"""

from __future__ import annotations

import dlx
import pytest
from support.cuda_producers import Framework
from support.simulated_driver import Simulation
from support.simulated_kernels import read, refused, write
from support.simulated_objects import GLOBAL, RELAXED, THREAD_LOCAL, DriverError

MODES = pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])


@pytest.fixture(autouse=True)
def _loaded(sim: Simulation, library: Framework) -> None:
    """Have the driver loaded and an event in the pool, as in a program that runs."""
    with library.stream(sim.stream()):
        dlx.from_dlpack(library.full((1,))).__dlpack__(stream=sim.stream().handle)


@MODES
def test_the_same_stream_needs_nothing(
    sim: Simulation, library: Framework, mode: int
) -> None:
    """B.6 row 1: the path of borrow."""
    p = sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture(mode)
        sim.clear_journal()
        with dlx.borrow(array) as (tensor, stream):
            write(stream, tensor)
        imported = dlx.from_dlpack(array, stream=p)
        read(p, imported)
        del imported
        assert sim.called() == []
    p.end_capture()
    assert sim.races == []


@MODES
def test_streams_that_do_not_capture_are_ordered_beside_a_capture(
    sim: Simulation, library: Framework, mode: int
) -> None:
    """B.6 row 2: while another one of this thread captures."""
    p, s, captured = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        captured.begin_capture(mode)
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        with tensor.use(stream=p):
            pass
        del tensor
    captured.end_capture()
    assert sim.races == []


@MODES
def test_streams_of_one_capture_are_ordered_in_its_graph(
    sim: Simulation, library: Framework, mode: int
) -> None:
    """B.6 row 3."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture(mode)
        s.wait_for(p)
        array += 1
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        del tensor
        p.wait_for(s)
        array += 1
    p.end_capture()
    assert sim.races == []


def test_an_import_does_not_draw_a_stream_into_a_capture(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 4: it would not come back (904)."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture()
        with refused(p, s, match=r"904\); use dlx.borrow or Tensor.use"):
            dlx.from_dlpack(array, stream=s)
    p.end_capture()


def test_an_export_does_not_draw_a_stream_into_a_capture(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 4."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=p)
        p.begin_capture()
        with refused(p, s, match="904"):
            tensor.__dlpack__(stream=s.handle)
    p.end_capture()


@MODES
def test_a_borrow_draws_a_stream_into_a_capture_and_joins_it_back(
    sim: Simulation, library: Framework, mode: int
) -> None:
    """B.6 row 4."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture(mode)
        array += 1
        with dlx.borrow(array, stream=s) as (tensor, stream):
            assert s.capture_status() == 1
            write(stream, tensor)
        array += 1
    p.end_capture()
    assert s.capture_status() == 0
    assert sim.races == []


def test_a_use_draws_a_stream_into_a_capture_and_joins_it_back(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 4: of a tensor that was imported on the stream that captures."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        kept = dlx.from_dlpack(array, stream=p)
        p.begin_capture()
        array += 1
        with kept.use(stream=s) as tensor:
            write(s, tensor)
        array += 1
    p.end_capture()
    assert sim.races == []


def test_a_borrow_whose_body_raises_joins_back(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 4: the capture could not end otherwise."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture()
        block = dlx.borrow(array, stream=s)
        tensor, stream = block.__enter__()
        write(stream, tensor)
        block.__exit__(KeyError, KeyError(), None)
    p.end_capture()


def test_a_borrow_that_fails_at_the_second_tensor_joins_the_first_back(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 4."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture()
        with pytest.raises(AttributeError):
            dlx.borrow(array, object(), stream=s).__enter__()
        # Whatever it was given in between has to be joined as well.
    p.end_capture()
    assert s.capture_status() == 0


@pytest.mark.parametrize("way", ["import", "export", "borrow", "use"])
def test_work_outside_is_not_waited_for_in_a_capture(
    sim: Simulation, library: Framework, way: str
) -> None:
    """B.6 row 5 (905): refused before it is touched."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array)
        s.begin_capture()
        with refused(p, s, match=r"905\); import .*, or pass stream=-1"):
            if way == "import":
                dlx.from_dlpack(array, stream=s)
            elif way == "export":
                tensor.__dlpack__(stream=s.handle)
            elif way == "borrow":
                dlx.borrow(array, stream=s).__enter__()
            else:
                tensor.use(stream=s).__enter__()
    s.end_capture()


def test_without_order_a_tensor_comes_into_a_capture(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 5: the way out that the error names."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        s.begin_capture()
        read(s, dlx.from_dlpack(array, stream=-1))
        with dlx.borrow(array, stream=-1) as (tensor, _):
            read(s, tensor)
    s.end_capture()


def test_work_that_is_done_is_not_waited_for_in_a_capture(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 5: the other way out, a tensor that was ready before."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
    tensor.synchronize()
    s.begin_capture()
    with library.stream(s):
        tensor.__dlpack__(stream=s.handle)
    s.end_capture()
    assert q.capture_status() == 0


def test_two_captures_are_not_merged(sim: Simulation, library: Framework) -> None:
    """B.6 row 6 (902)."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture()
        s.begin_capture()
        with refused(p, s, match=r"902\); capture both into one"):
            dlx.from_dlpack(array, stream=s)
        with refused(p, s, match="902"):
            dlx.borrow(array, stream=s).__enter__()
    s.end_capture()
    p.end_capture()


def test_a_tensor_that_is_ready_in_a_capture_stays_there(
    sim: Simulation, library: Framework
) -> None:
    """B.6 rows 4 and 6: also when that capture has ended."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture()
        tensor = dlx.from_dlpack(array)
    with library.stream(q):
        with refused(p, s, match="inside the capture"):
            tensor.__dlpack__(stream=s.handle)
        p.end_capture()
        with refused(s, match="inside the capture"):
            tensor.__dlpack__(stream=s.handle)


@pytest.mark.parametrize("blocking", [True, False])
def test_the_legacy_stream_is_not_used_beside_the_capture_of_a_blocking_stream(
    sim: Simulation, library: Framework, blocking: bool
) -> None:
    """B.6 row 7 (906): as the producer's."""
    s, captured = sim.stream(), sim.stream(blocking=blocking)
    array = library.full((4,))
    captured.begin_capture()
    if blocking:
        with refused(captured, s, match=r"906\); capture with the tensor's own"):
            dlx.from_dlpack(array, stream=s)
        with refused(captured, match="906"):
            dlx.from_dlpack(array)
    else:
        read(s, dlx.from_dlpack(array, stream=s))
    captured.end_capture()
    assert sim.races == []


def test_the_legacy_stream_does_not_wait_beside_the_capture_of_a_blocking_stream(
    sim: Simulation, library: Framework
) -> None:
    """B.6 row 7 (906): as the consumer's, which None is too (R72)."""
    p, captured = sim.stream(), sim.stream(blocking=True)
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
        captured.begin_capture()
        with refused(captured, p, match="906"):
            tensor.__dlpack__()
        with refused(captured, p, match="906"):
            tensor.__dlpack__(stream=1)
    captured.end_capture()


def test_a_capture_that_has_failed_is_said_to_have(
    sim: Simulation, library: Framework
) -> None:
    """B.6 (901)."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.begin_capture()
        assert sim.answer("cuStreamQuery", p.handle) == 900
        with refused(p, s, match=r"has failed \(901\); end it first"):
            dlx.from_dlpack(array, stream=s)
    with pytest.raises(DriverError, match="901"):
        p.end_capture()
