"""Contexts and handles on the simulated driver: green ones, and those used again."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int32, c_uint64

import pytest
from support.concurrent_threads import in_thread
from support.python_process import run_python
from support.simulated_contexts import Context, green_context, second_context
from support.simulated_driver import Simulation
from support.simulated_objects import LEGACY, PER_THREAD, Event, Stream

INVALID_CONTEXT, INVALID_HANDLE, DESTROYED, DETACHED = 201, 400, 709, 917


def code_elsewhere(sim: Simulation, call: tuple[object, ...]) -> int:
    """Return the code that a call answers in a thread of its own."""
    name, *arguments = call

    def attempt() -> int:
        code = sim.answer(str(name), *arguments)
        sim.use_no_device()
        return code

    return in_thread(attempt)


def contexts_of(sim: Simulation, stream: int) -> tuple[int, int, int]:
    """Return the context of a stream, its regular one and its green one."""
    context, regular, green = c_uint64(), c_uint64(), c_uint64()
    sim.call("cuStreamGetCtx", stream, byref(context))
    sim.call("cuStreamGetCtx_v2", stream, byref(regular), byref(green))
    return context.value, regular.value, green.value


def id_of(sim: Simulation, name: str, handle: int) -> int:
    """Return the number of a stream or context."""
    number = c_uint64()
    sim.call(name, handle, byref(number))
    return number.value


# Handles.


@pytest.mark.parametrize("hip", [False, True])
def test_the_handle_of_a_stream_is_used_again(sim: Simulation, hip: bool) -> None:
    """H3: whoever compares handles takes the second for the first."""
    a, b = sim.stream(hip=hip), sim.stream(hip=hip)
    b.destroy()
    a.destroy()
    assert [sim.stream(hip=hip).handle for _ in "ab"] == [a.handle, b.handle]


def test_a_stream_with_a_handle_used_again_is_another_stream(sim: Simulation) -> None:
    """H3: it is not ordered after the work of the first."""
    a, memory = sim.stream(), sim.allocate(64)
    number = id_of(sim, "cuStreamGetId", a.handle)
    a.write(memory)
    a.destroy()
    b = sim.stream()
    assert b.handle == a.handle
    assert id_of(sim, "cuStreamGetId", b.handle) != number
    b.write(memory)
    assert len(sim.races) == 1


def test_the_handle_of_an_event_is_used_again(sim: Simulation) -> None:
    a = sim.stream()
    event = a.record()
    event.destroy()
    again = sim.event()
    assert again.handle == event.handle
    assert again.query()


def test_the_handle_of_a_context_is_used_again(sim: Simulation) -> None:
    first = second_context(sim)
    number = id_of(sim, "cuCtxGetId", first.handle)
    stream = first.stream()
    first.destroy()
    again = second_context(sim)
    assert again.handle == first.handle
    assert id_of(sim, "cuCtxGetId", again.handle) != number
    assert sim.answer("cuStreamQuery", stream.handle) == DESTROYED


@pytest.mark.parametrize("kind", ["stream", "event"])
def test_a_destroyed_handle_is_a_violation(sim: Simulation, kind: str) -> None:
    """H3: as long as it is not used again."""
    made: Stream | Event = getattr(sim, kind)()
    made.destroy()
    name = f"cu{kind.capitalize()}Query"
    assert sim.answer(name, made.handle) == INVALID_HANDLE
    [violation] = sim.violations
    assert violation.what == f"use of dead {kind} {made.handle:#x}"
    getattr(sim, kind)()
    assert sim.answer(name, made.handle) == 0
    sim.start()


def test_a_destroyed_context_cannot_be_made_current(sim: Simulation) -> None:
    context = second_context(sim)
    context.destroy()
    assert sim.answer("cuCtxPushCurrent_v2", context.handle) == INVALID_CONTEXT


# Primary contexts.


def test_the_retained_primary_contexts_are_known() -> None:
    code, output, errors = run_python("""
        from support.simulated_driver import simulation
        sim = simulation()
        sim.call("cuInit", 0)
        print(sim.retained)
        sim.context(1)
        sim.stream(1)
        print(sim.retained)
        sim.call("cuDevicePrimaryCtxRelease_v2", 1)
        print(sim.retained)
    """)
    assert (code, output, errors) == (0, "{}\n{1: 1}\n{}\n", "")


def test_streams_are_told_from_a_thread_without_context(sim: Simulation) -> None:
    """H7: `cuStreamGetCtx` needs none for a stream that somebody has made."""
    stream = sim.stream(1)
    sim.use_no_device()
    assert contexts_of(sim, stream.handle) == (sim.context(1), sim.context(1), 0)
    for handle in (LEGACY, PER_THREAD):
        call = ("cuStreamGetCtx", handle, byref(c_uint64()))
        assert sim.answer(*call) == INVALID_CONTEXT


@pytest.mark.parametrize("make", [second_context, green_context])
def test_the_legacy_stream_is_that_of_the_current_context(
    sim: Simulation, make: Callable[[Simulation], Context]
) -> None:
    """H8: and not ordered with that of the primary one."""
    memory, legacy = sim.allocate(64), sim.default_stream(LEGACY)
    legacy.write(memory)
    with make(sim).current():
        legacy.write(memory)
    assert len(sim.races) == 1


# Green contexts.


@pytest.fixture
def green(sim: Simulation) -> Context:
    """Give the context of a green context."""
    return green_context(sim)


def test_a_green_context_tells_its_streams(sim: Simulation, green: Context) -> None:
    """`cuStreamGetCtx_v2` gives the primary context, too."""
    stream, primary = green.stream(), sim.context(0)
    found, wanted = c_uint64(), (green.handle, primary, green.green)
    assert contexts_of(sim, stream.handle) == wanted
    sim.call("cuStreamGetGreenCtx", stream.handle, byref(found))
    assert found.value == green.green
    with green.current():
        assert contexts_of(sim, LEGACY) == wanted
    assert contexts_of(sim, LEGACY) == (primary, primary, 0)


def test_a_green_context_has_no_per_thread_stream(
    sim: Simulation, green: Context
) -> None:
    """cuda.h, `cuStreamGetCtx_v2`: `CUDA_ERROR_INVALID_HANDLE`."""
    places = [byref(c_uint64()), byref(c_uint64())]
    with green.current():
        code = sim.answer("cuStreamGetCtx_v2", PER_THREAD, *places)
        assert code == sim.answer("cuStreamQuery", PER_THREAD) == INVALID_HANDLE
        assert sim.answer("cuStreamGetCtx", PER_THREAD, places[0]) == 0


def test_a_green_context_is_no_context(sim: Simulation, green: Context) -> None:
    """`CUgreenCtx` is not `CUcontext`, and the other way round."""
    assert sim.answer("cuCtxPushCurrent_v2", green.green) == INVALID_CONTEXT
    assert sim.answer("cuGreenCtxDestroy", green.handle) == INVALID_CONTEXT


@pytest.mark.parametrize("name", ["cuCtxPushCurrent_v2", "cuCtxSetCurrent"])
def test_a_green_context_is_current_in_one_thread(
    sim: Simulation, green: Context, name: str
) -> None:
    with green.current(), sim.on_device(0):
        assert code_elsewhere(sim, (name, green.handle)) == INVALID_CONTEXT
        assert sim.answer(name, green.handle) == 0
        sim.call("cuCtxPopCurrent_v2", None)
        if name == "cuCtxSetCurrent":
            sim.call("cuCtxPushCurrent_v2", sim.context(0))
    assert code_elsewhere(sim, (name, green.handle)) == 0


def test_a_thread_that_ends_has_no_context(sim: Simulation, green: Context) -> None:
    call = ("cuCtxSetCurrent", green.handle)
    in_thread(lambda: sim.call(*call))
    # For Python a thread has ended a little before it ends for the driver.
    assert any(code_elsewhere(sim, call) == 0 for _ in range(1000))


def test_any_other_context_is_current_in_many_threads(sim: Simulation) -> None:
    context = second_context(sim)
    with context.current():
        assert code_elsewhere(sim, ("cuCtxPushCurrent_v2", context.handle)) == 0


def test_an_event_of_the_primary_context_is_not_recorded_on_a_green_stream(
    sim: Simulation, green: Context
) -> None:
    """H7: they are not from the same context."""
    stream, event = green.stream(), sim.event()
    assert sim.answer("cuEventRecord", event.handle, stream.handle) == INVALID_HANDLE
    stream.wait(sim.stream().record())
    with green.current():
        own = sim.keep(Event(sim, sim.get("cuEventCreate", 2)))
        own.record(stream)


def test_the_primary_context_waits_for_its_green_ones(
    sim: Simulation, green: Context
) -> None:
    memory = sim.allocate(64)
    green.stream().write(memory)
    sim.call("cuCtxSynchronize")
    sim.host_write(memory.address, 64)
    assert sim.races == []


def test_a_green_context_waits_for_itself(sim: Simulation, green: Context) -> None:
    memory = sim.allocate(64)
    sim.stream().write(memory)
    with green.current():
        sim.call("cuCtxSynchronize")
    sim.host_write(memory.address, 64)
    assert len(sim.races) == 1


def test_a_green_context_retains_the_primary_one(sim: Simulation) -> None:
    before = sim.retained
    green = green_context(sim, 1)
    assert sim.retained.get(1, 0) == before.get(1, 0) + 1
    green.destroy()
    assert sim.retained.get(1, 0) == before.get(1, 0)


def test_streams_outlive_their_green_context(sim: Simulation, green: Context) -> None:
    """They can only be destroyed: all else answers `CUDA_ERROR_STREAM_DETACHED`."""
    stream = green.stream()
    stream.begin_capture()
    green.destroy()
    assert sim.answer("cuStreamQuery", stream.handle) == DETACHED
    assert sim.answer("cuStreamIsCapturing", stream.handle, byref(c_int32())) == 917
    sim.start()


def test_a_detached_stream_is_destroyed(sim: Simulation, green: Context) -> None:
    stream = green.stream()
    green.destroy()
    stream.destroy()
    assert sim.stream().handle == stream.handle
