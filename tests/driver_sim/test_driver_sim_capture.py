"""Captures on the simulated driver: what breaks them, and by which error (H6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import addressof, byref, c_int32, c_uint64, create_string_buffer

import pytest
from support.concurrent_threads import in_thread
from support.simulated_contexts import second_context
from support.simulated_driver import Simulation
from support.simulated_objects import (
    GLOBAL,
    LEGACY,
    RELAXED,
    THREAD_LOCAL,
    DriverError,
    Stream,
)

UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED = 900, 901, 902, 903, 904
ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = 905, 906, 907, 908
INVALID_VALUE = 1
ACTIVE, BROKEN = 1, 2


def code_of(function: Callable[[], object]) -> int:
    """Code that a call answers, 0 if none."""
    try:
        function()
    except DriverError as error:
        return error.code
    return 0


def code_elsewhere(function: Callable[[], object]) -> int:
    """The same in a thread of its own."""
    return in_thread(lambda: code_of(function))


@contextmanager
def broken(stream: Stream, mode: int = GLOBAL) -> Iterator[None]:
    """Capture what the block queues, which must break the capture."""
    stream.begin_capture(mode)
    yield
    assert code_of(stream.end_capture) == INVALIDATED


@pytest.fixture
def a(sim: Simulation) -> Stream:
    """Give a stream, which most tests capture."""
    return sim.stream()


@pytest.fixture
def b(sim: Simulation) -> Stream:
    """Give another stream."""
    return sim.stream()


def test_a_capture_begins_and_ends(sim: Simulation, a: Stream) -> None:
    memory = sim.allocate(64)
    assert a.capture_status() == 0
    with a.capture():
        assert a.capture_status() == ACTIVE
        a.write(memory)
    assert a.capture_status() == 0
    assert sim.counts["captures"] == sim.counts["graphs"] == 0


def test_captured_work_does_not_happen(sim: Simulation, a: Stream, b: Stream) -> None:
    memory = sim.allocate(64)
    with a.capture():
        a.write(memory)
        b.write(memory)
    assert sim.races == []


def test_captured_work_races_with_its_own_capture(
    sim: Simulation, a: Stream, b: Stream
) -> None:
    memory = sim.allocate(64)
    with a.capture():
        b.wait_for(a)
        a.write(memory)
        b.write(memory)
        a.wait_for(b)
    assert len(sim.races) == 1


def test_an_event_is_an_edge_within_a_capture(
    sim: Simulation, a: Stream, b: Stream
) -> None:
    """H6: both streams are in one capture."""
    memory = sim.allocate(64)
    with a.capture():
        a.write(memory)
        b.wait_for(a)
        assert b.capture_status() == ACTIVE
        b.write(memory)
        a.wait_for(b)
        a.write(memory)
    assert b.capture_status() == 0
    assert sim.races == []


def test_a_stream_that_does_not_join_back_is_unjoined(a: Stream, b: Stream) -> None:
    """H6 (904): the capture ends with an error."""
    a.begin_capture()
    b.wait_for(a)
    assert code_of(a.end_capture) == UNJOINED
    assert (a.capture_status(), b.capture_status()) == (0, 0)


def test_work_from_outside_cannot_enter(a: Stream, b: Stream) -> None:
    """H6 (905): and the capture is lost."""
    outside = b.record()
    with broken(a):
        assert code_of(lambda: a.wait(outside)) == ISOLATION
        assert a.capture_status() == BROKEN
        assert code_of(a.record) == INVALIDATED
    assert a.capture_status() == 0


def test_captures_do_not_merge(a: Stream, b: Stream) -> None:
    """H6 (902): and both are lost."""
    a.begin_capture()
    b.begin_capture()
    event = a.record()
    assert code_of(lambda: b.wait(event)) == MERGE
    assert code_of(a.end_capture) == code_of(b.end_capture) == INVALIDATED


@pytest.mark.parametrize("use", ["record", "wait", "launch", "synchronize", "query"])
def test_the_legacy_stream_breaks_the_capture_of_a_blocking_stream(
    sim: Simulation, use: str
) -> None:
    """H6 (906): whatever it is used for."""
    a, memory = sim.stream(blocking=True), sim.allocate(64)
    legacy = sim.default_stream(LEGACY)
    event = sim.stream().record()
    uses: dict[str, Callable[[], object]] = {
        "record": lambda: event.record(legacy),
        "wait": lambda: legacy.wait(event),
        "launch": lambda: legacy.write(memory),
        "synchronize": legacy.synchronize,
        "query": legacy.query,
    }
    with broken(a):
        assert code_of(uses[use]) == IMPLICIT
        assert a.capture_status() == BROKEN
    assert code_of(uses[use]) == 0


def test_asking_the_legacy_stream_breaks_nothing(sim: Simulation) -> None:
    """H6 (906): `cuStreamIsCapturing` answers it without harm."""
    a = sim.stream(blocking=True)
    with a.capture():
        assert code_of(sim.default_stream(LEGACY).capture_status) == IMPLICIT
        assert a.capture_status() == ACTIVE


def test_the_legacy_stream_does_not_care_about_others(sim: Simulation) -> None:
    legacy = sim.default_stream(LEGACY)
    elsewhere = sim.stream(1, blocking=True)
    with sim.stream().capture(), elsewhere.capture():
        legacy.record()
        assert legacy.capture_status() == 0


def test_the_legacy_stream_cannot_capture(sim: Simulation) -> None:
    assert code_of(sim.default_stream(LEGACY).begin_capture) == UNSUPPORTED


def test_the_legacy_stream_cannot_be_pulled_in(sim: Simulation, a: Stream) -> None:
    with broken(a):
        event = a.record()
        assert code_of(lambda: sim.default_stream(LEGACY).wait(event)) == IMPLICIT


@pytest.mark.parametrize("ask", ["query", "synchronize"])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_captured_event_has_no_status(a: Stream, ask: str, mode: int) -> None:
    """H6: neither during the capture (907) nor after it (1)."""
    with broken(a, mode):
        event = a.record()
        assert code_of(getattr(event, ask)) == CAPTURED_EVENT
    assert code_of(getattr(event, ask)) == INVALID_VALUE


def test_a_captured_event_can_be_recorded_again(a: Stream) -> None:
    with a.capture():
        event = a.record()
    event.record(a)
    assert not event.query()


@pytest.mark.parametrize("ask", ["query", "synchronize", "destroy"])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_capturing_stream_has_no_status(a: Stream, ask: str, mode: int) -> None:
    with broken(a, mode):
        assert code_of(getattr(a, ask)) == UNSUPPORTED


@pytest.mark.parametrize("name", ["cuStreamGetId", "cuStreamGetDevice"])
def test_questions_break_a_capture(sim: Simulation, a: Stream, name: str) -> None:
    """H6: nothing but record and wait may be called."""
    with broken(a, RELAXED):
        assert sim.answer(name, a.handle, byref(c_uint64())) == UNSUPPORTED


@pytest.mark.parametrize("exchanged", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_context_of_a_capture_cannot_be_waited_for(
    sim: Simulation, a: Stream, mode: int, exchanged: int
) -> None:
    """H6: in no mode, and from no thread."""

    def synchronize() -> None:
        sim.use_device(0)
        sim.capture_mode(exchanged)
        sim.call("cuCtxSynchronize")

    for runs in (code_of, code_elsewhere):
        with broken(a, mode):
            assert runs(synchronize) == UNSUPPORTED
    sim.capture_mode(GLOBAL)


def test_another_context_of_the_device_cannot_be_waited_for(
    sim: Simulation, a: Stream
) -> None:
    """H6: ROCm/rocm-systems#4508 has measured that the device counts."""
    other = second_context(sim)
    with broken(a, RELAXED), other.current():
        assert sim.answer("cuCtxSynchronize") == UNSUPPORTED


def test_a_context_of_another_device_can_be_waited_for(
    sim: Simulation, a: Stream
) -> None:
    with a.capture(RELAXED), sim.on_device(1):
        sim.call("cuCtxSynchronize")


def unsafe_calls(sim: Simulation) -> list[Callable[[], object]]:
    """Calls on nothing that captures."""
    other, event, memory = sim.stream(), sim.event(), sim.allocate(8)
    host, target = create_string_buffer(8), sim.allocate(8)
    event.record(other)

    def copy(*, up: bool) -> Callable[[], object]:
        def queue() -> None:
            # What is called holds the memory, not only its addresses.
            here, there = addressof(host), target.address
            to, source = (there, here) if up else (here, there)
            sim.call("cuMemcpyAsync", to, source, 8, other.handle)

        return queue

    return [
        event.query,
        event.synchronize,
        other.query,
        other.synchronize,
        memory.free,
        lambda: sim.allocate(8),
        lambda: sim.allocate(8, kind="pinned"),
        lambda: sim.allocate(8, kind="managed"),
        copy(up=True),
        copy(up=False),
    ]


@pytest.mark.parametrize("call", range(10))
@pytest.mark.parametrize(
    ("capture", "thread", "here", "elsewhere"),
    [
        (GLOBAL, GLOBAL, True, True),
        (GLOBAL, THREAD_LOCAL, True, False),
        (GLOBAL, RELAXED, False, False),
        (THREAD_LOCAL, GLOBAL, True, False),
        (THREAD_LOCAL, THREAD_LOCAL, True, False),
        (THREAD_LOCAL, RELAXED, False, False),
        (RELAXED, GLOBAL, False, False),
        (RELAXED, THREAD_LOCAL, False, False),
        (RELAXED, RELAXED, False, False),
    ],
)
def test_unsafe_calls_break_captures_as_the_modes_say(
    sim: Simulation, call: int, capture: int, thread: int, here: bool, elsewhere: bool
) -> None:
    """H6: in the global mode, calls from any other thread do."""

    def attempt() -> None:
        sim.use_device(0)
        before = sim.capture_mode(thread)
        try:
            unsafe()
        finally:
            sim.capture_mode(before)

    for runs, breaks in ((code_of, here), (code_elsewhere, elsewhere)):
        a, unsafe = sim.stream(), unsafe_calls(sim)[call]
        a.begin_capture(capture)
        code = runs(attempt)
        assert code == (UNSUPPORTED if breaks else 0)
        assert code_of(a.end_capture) == (INVALIDATED if breaks else 0)


def test_the_mode_of_a_thread_is_exchanged(sim: Simulation) -> None:
    assert sim.capture_mode(RELAXED) == GLOBAL
    assert sim.capture_mode(GLOBAL) == RELAXED


def test_only_the_origin_ends_a_capture(a: Stream, b: Stream) -> None:
    with broken(a):
        b.wait_for(a)
        assert code_of(b.end_capture) == UNMATCHED


@pytest.mark.parametrize(
    ("mode", "code"),
    [(GLOBAL, WRONG_THREAD), (THREAD_LOCAL, WRONG_THREAD), (RELAXED, 0)],
)
def test_a_capture_ends_in_its_thread(a: Stream, mode: int, code: int) -> None:
    a.begin_capture(mode)
    assert code_elsewhere(a.end_capture) == code


def test_a_capture_has_a_number(sim: Simulation, a: Stream, b: Stream) -> None:
    """H6: which tells one capture from two."""
    c = sim.stream()
    with a.capture(), c.capture():
        b.wait_for(a)
        assert number_of(sim, a) == number_of(sim, b) != number_of(sim, c)
        a.wait_for(b)


def number_of(sim: Simulation, stream: Stream) -> int:
    """Number of the capture, which is active."""
    status, number = c_int32(), c_uint64()
    sim.call(
        "cuStreamGetCaptureInfo_v2",
        stream.handle,
        byref(status),
        byref(number),
        None,
        None,
        None,
    )
    assert status.value == ACTIVE
    return number.value


def test_pools_are_used_within_captures(sim: Simulation, a: Stream) -> None:
    with a.capture():
        memory = a.allocate(64)
        a.write(memory)
        a.free(memory)
    assert sim.races == []
    assert sim.violations == []
    memory.live = True


def test_external_flags_are_for_captures(sim: Simulation, a: Stream) -> None:
    """CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL are errors elsewhere."""
    event = sim.event()
    record = ("cuEventRecordWithFlags", event.handle, a.handle, 1)
    wait = ("cuStreamWaitEvent", a.handle, event.handle, 1)
    assert sim.answer(*record) == sim.answer(*wait) == 1
    with a.capture():
        sim.call(*record)
        sim.call(*wait)
    assert event.query()


def test_an_event_of_a_capture_that_ended_orders_nothing(a: Stream, b: Stream) -> None:
    with a.capture():
        event = a.record()
    assert code_of(lambda: b.wait(event)) == CAPTURED_EVENT


def test_a_test_starts_without_captures(sim: Simulation) -> None:
    a = sim.stream()
    sim.capture_mode(RELAXED)
    code_elsewhere(a.begin_capture)
    sim.start()
    assert sim.counts["captures"] == sim.counts["streams"] == 0
    assert sim.capture_mode(GLOBAL) == GLOBAL
