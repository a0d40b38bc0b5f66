"""What dlx asks of the driver, as the journal of the simulated one shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p

import dlx
import pytest
from dlx._core import deferred
from support.cuda_producers import CUDA, DLPackArray, Framework, TableArray, framework
from support.dlpack_abi import DLTensor, delete, from_table, table_of
from support.simulated_driver import Simulation
from support.simulated_kernels import read, until
from support.simulated_objects import LEGACY, PER_THREAD

RECORD, WAIT, CREATE = "cuEventRecord", "cuStreamWaitEvent", "cuEventCreate"
QUESTIONS = {
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRetain",
    "cuStreamIsCapturing",
    "cuStreamGetCtx",
    "cuEventQuery",
    "cuThreadExchangeStreamCaptureMode",
}
"""Calls that change nothing."""


@pytest.fixture(autouse=True)
def _warm(sim: Simulation, library: Framework) -> None:
    """Load the driver, fill the pool of events, and let dlx ask what it asks once."""
    p = sim.stream()
    with library.stream(p):
        dlx.from_dlpack(library.full((1,)), stream=sim.stream())
        kept = [dlx.from_dlpack(library.full((1,))) for _ in range(8)]
        kept[0].__dlpack__(stream=sim.stream().handle)


@contextmanager
def effects(sim: Simulation, *expected: str) -> Iterator[None]:
    """Expect that dlx does these things, in this order, whatever it asks."""
    sim.clear_journal()
    yield
    called = [name for name in sim.called() if name not in QUESTIONS]
    assert called == list(expected)


@contextmanager
def no_calls(sim: Simulation) -> Iterator[None]:
    """Expect no call but the question which context a default stream belongs to."""
    sim.clear_journal()
    yield
    assert set(sim.called()) <= {"cuCtxGetCurrent"}


@pytest.mark.parametrize("default", [None, LEGACY, PER_THREAD])
def test_an_import_on_the_producers_stream_calls_nothing(
    sim: Simulation, library: Framework, default: int | None
) -> None:
    """R81: neither when it comes nor when it goes."""
    p = sim.stream() if default is None else sim.default_stream(default)
    with library.stream(p):
        array = library.full((4,))
        with no_calls(sim):
            tensor = dlx.from_dlpack(array, stream=p)
            del tensor


def test_an_import_without_order_calls_nothing(
    sim: Simulation, library: Framework
) -> None:
    """R76: nor do its export and its release."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        with no_calls(sim):
            tensor = dlx.from_dlpack(array, stream=-1)
            tensor.__dlpack__(stream=-1)
            del tensor


@pytest.mark.parametrize("given", [True, False])
def test_a_borrow_on_the_producers_stream_calls_nothing(
    sim: Simulation, library: Framework, given: bool
) -> None:
    """R81, R143: the stream is the producer's, whether it is named or not."""
    p = sim.stream()
    with library.stream(p):
        a, b = library.full((4,)), library.full((4,))
        with (
            no_calls(sim),
            dlx.borrow(a, out=b, stream=p if given else None) as (ta, tb, stream),
        ):
            assert (stream, ta.stream, tb.stream) == (p.handle,) * 3


def test_a_borrow_of_tensors_on_their_stream_calls_nothing(
    sim: Simulation, library: Framework
) -> None:
    """R81: nor does a use."""
    p = sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=p)
        with no_calls(sim), dlx.borrow(tensor) as (_, stream):
            assert stream == p.handle
        with no_calls(sim), tensor.use(stream=p) as view:
            assert view.stream == p.handle


def test_an_import_for_another_stream_is_one_record_and_one_wait(
    sim: Simulation, library: Framework
) -> None:
    """R80, R83: the record on the producer's stream, the wait on the given one."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        with effects(sim, RECORD, WAIT):
            dlx.from_dlpack(array, stream=s, release="none")
    record, wait = [call for call in sim.calls() if call.name in (RECORD, WAIT)]
    assert record.arguments["stream"] == p.handle
    assert wait.arguments["stream"] == s.handle
    assert record.arguments["event"] == wait.arguments["event"]


def test_an_import_without_a_stream_is_one_record(
    sim: Simulation, library: Framework
) -> None:
    """R80: on the producer's stream."""
    p = sim.stream()
    with library.stream(p):
        array = library.full((4,))
        with effects(sim, RECORD):
            dlx.from_dlpack(array)
    [record] = [call for call in sim.calls() if call.name == RECORD]
    assert record.arguments["stream"] == p.handle


def test_a_deferred_release_is_one_record(sim: Simulation, library: Framework) -> None:
    """H4: and one question when somebody comes by later."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)
        with effects(sim, RECORD):
            del tensor


def test_a_borrow_on_another_stream_is_joined_once_at_each_end(
    sim: Simulation, library: Framework
) -> None:
    """R80, R150, H1: one record and one wait each."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        block = dlx.borrow(library.full((4,)), stream=s)
        with effects(sim, RECORD, WAIT):
            block.__enter__()
        with effects(sim, RECORD, WAIT):
            block.__exit__(None, None, None)


def test_a_use_on_another_stream_is_joined_once_at_each_end(
    sim: Simulation, library: Framework
) -> None:
    """R80, R150, H1: one record each, and a wait for the point of the import too."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        use = dlx.from_dlpack(library.full((4,))).use(stream=s)
        with effects(sim, RECORD, WAIT, WAIT):
            use.__enter__()
        with effects(sim, RECORD, WAIT):
            use.__exit__(None, None, None)


def test_no_event_is_created_once_the_pool_is_warm(
    sim: Simulation, library: Framework
) -> None:
    """src/driver/event.rs: creating one under load may take milliseconds."""
    p, s = sim.stream(), sim.stream()

    def everything() -> None:
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s)
        with dlx.borrow(array, stream=s), tensor.use(stream=p):
            pass
        dlx.from_dlpack(array).__dlpack__(stream=s.handle)
        del tensor, array
        sim.advance()
        until(lambda: deferred() == 0)
        dlx.from_dlpack(library.full((1,)))

    with library.stream(p):
        everything()
        sim.clear_journal()
        for _ in range(20):
            everything()
    assert RECORD in sim.called()
    assert CREATE not in sim.called()
    assert "cuEventDestroy_v2" not in sim.called()


def test_the_legacy_stream_is_left_alone_where_the_producers_is_known(
    sim: Simulation, library: Framework
) -> None:
    """H6: it would end captures, and serialize what is not."""
    p, s = sim.stream(), sim.stream()
    sim.clear_journal()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array)
        with tensor.use(stream=s), dlx.borrow(array):
            pass
        tensor.__dlpack__(stream=s.handle)
        dlx.from_dlpack(tensor, stream=s)
        del tensor
    streams = {call.arguments.get("stream") for call in sim.calls()}
    assert s.handle in streams
    assert not {0, LEGACY, PER_THREAD} & streams


def test_an_export_to_the_same_stream_calls_nothing(
    sim: Simulation, library: Framework
) -> None:
    """R81: the consumer's stream is that of the import."""
    p = sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=p)
        with no_calls(sim):
            tensor.__dlpack__(stream=p.handle)


def test_an_export_waits_for_the_producer_and_for_the_stream_of_the_tensor(
    sim: Simulation, library: Framework
) -> None:
    """R80, H12: two streams, one record and one wait each, the waits last."""
    p, s, consumer = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)
        with effects(sim, RECORD, RECORD, WAIT, WAIT):
            tensor.__dlpack__(stream=consumer.handle)
    records = [call for call in sim.calls() if call.name == RECORD]
    assert {call.arguments["stream"] for call in records} == {p.handle, s.handle}


def test_an_export_touches_the_consumers_stream_during_the_call_alone(
    sim: Simulation, library: Framework
) -> None:
    """R82: it is not stored, so that it may be destroyed."""
    p, consumer = sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
        capsule = tensor.__dlpack__(stream=consumer.handle, max_version=(1, 3))
        read(consumer, tensor)
        consumer.synchronize()
        sim.clear_journal()
        del capsule, tensor
        dlx.from_dlpack(library.full((1,)))
    assert consumer.handle not in {c.arguments.get("stream") for c in sim.calls()}


@pytest.mark.parametrize("base", [TableArray, DLPackArray])
def test_a_producer_without_a_table_orders_itself(
    sim: Simulation, base: type[DLPackArray]
) -> None:
    """R83: dlx need not know how."""
    library, p, s = framework(base), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        array.__dlpack_device__()
        with effects(sim, *([RECORD, WAIT] if base is TableArray else [])):
            tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
    assert sim.races == []


def test_the_functions_of_dlxs_table_call_nothing_where_the_streams_agree(
    sim: Simulation, library: Framework
) -> None:
    """R126, R140: `dlx.stream` says which one is current."""
    p = sim.stream()
    table = table_of(dlx.Tensor)
    with library.stream(p), dlx.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=p)
        with no_calls(sim):
            delete(from_table(table, tensor))
            view = DLTensor()
            given = table.dltensor_from_py_object_no_sync(tensor, byref(view))
            assert given == 0
            place = c_void_p()
            assert table.current_work_stream(CUDA, 0, byref(place)) == 0
    assert view.data == tensor.data_ptr
    assert place.value == p.handle


def test_the_functions_of_dlxs_table_order_where_the_streams_differ(
    sim: Simulation, library: Framework
) -> None:
    """R126, R143: for who runs on the stream that the table names."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
        with dlx.stream(s):
            managed = from_table(table_of(dlx.Tensor), tensor)
            read(s, tensor)
            s.synchronize()
            delete(managed)
    assert sim.races == []


def test_an_import_asks_nothing_of_what_waits(
    sim: Simulation, library: Framework
) -> None:
    """H4: a thread does."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        for _ in range(40):
            read(s, dlx.from_dlpack(library.full((4,)), stream=s))
        array = library.full((4,))
        sim.clear_journal()
        dlx.from_dlpack(array)
    assert "cuEventQuery" not in sim.called()
