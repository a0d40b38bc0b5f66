"""The simulated driver's rules: initialization, contexts, versions, HIP, errors."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int32, c_uint64

import pytest
from support.python_process import run_python
from support.simulated_driver import Simulation
from support.simulated_objects import LEGACY, PER_THREAD, DriverError

INVALID_CONTEXT, INVALID_HANDLE = 201, 400


def test_events_and_streams_have_one_context(sim: Simulation) -> None:
    """H7: a record on a stream of another context fails."""
    a, event = sim.stream(1), sim.event(0)
    with pytest.raises(DriverError, match="cuEventRecord: 400"):
        event.record(a)
    assert sim.violations == []


def test_waits_cross_contexts(sim: Simulation) -> None:
    """H7: an event of one device orders a stream of another."""
    a, b, memory = sim.stream(0), sim.stream(1), sim.allocate(8, kind="managed")
    a.write(memory)
    b.wait_for(a)
    b.write(memory)
    assert sim.races == []


@pytest.mark.parametrize("handle", [LEGACY, PER_THREAD])
def test_default_streams_are_of_the_current_context(
    sim: Simulation, handle: int
) -> None:
    """H8, R86: handles 1 and 2 need the event's context to be current."""
    event = sim.event(1)
    assert sim.answer("cuEventRecord", event.handle, handle) == INVALID_HANDLE
    with sim.on_device(1):
        assert sim.answer("cuEventRecord", event.handle, handle) == 0
    sim.use_no_device()
    assert sim.answer("cuEventRecord", event.handle, handle) == INVALID_CONTEXT


@pytest.mark.parametrize(
    "call",
    [
        ("cuStreamCreate", byref(c_uint64()), 0),
        ("cuEventCreate", byref(c_uint64()), 2),
        ("cuMemAlloc_v2", byref(c_uint64()), 8),
        ("cuCtxSynchronize",),
        ("cuCtxGetDevice", byref(c_int32())),
        ("cuStreamSynchronize", LEGACY),
        ("cuCtxPopCurrent_v2", None),
    ],
)
def test_some_calls_need_a_context(sim: Simulation, call: tuple[str, object]) -> None:
    sim.use_no_device()
    assert sim.answer(*call) == INVALID_CONTEXT


@pytest.mark.parametrize(
    ("name", "of_event", "of_stream"),
    [
        ("cuEventRecord", True, True),
        ("cuEventSynchronize", True, False),
        ("cuStreamSynchronize", False, True),
        ("cuStreamQuery", False, True),
    ],
)
def test_some_calls_on_handles_need_a_context(
    sim: Simulation, name: str, of_event: bool, of_stream: bool
) -> None:
    """H5: cuda.h says that they may answer 201."""
    a, event = sim.stream(), sim.event()
    handles = [event.handle] * of_event + [a.handle] * of_stream
    sim.use_no_device()
    assert sim.answer(name, *handles) == INVALID_CONTEXT
    sim.use_device(1)
    assert sim.answer(name, *handles) in (0, 600)


def test_some_calls_on_handles_need_no_context(sim: Simulation) -> None:
    """H5: cuda.h says so of some, and cuda.core relies on it for others."""
    a, event = sim.stream(), sim.event()
    sim.use_no_device()
    sim.call("cuStreamGetId", a.handle, byref(c_uint64()))
    memory = a.allocate(8)
    a.free(memory)
    assert not a.capture_status()
    assert event.query()
    event.destroy()
    a.destroy()


def test_contexts_are_a_stack(sim: Simulation) -> None:
    with sim.on_device(1):
        assert sim.get("cuCtxGetCurrent") == sim.context(1)
    assert sim.get("cuCtxGetCurrent") == sim.context(0)


def test_the_context_of_a_stream_is_told(sim: Simulation) -> None:
    place = c_uint64()
    sim.call("cuStreamGetCtx", sim.stream(1).handle, byref(place))
    assert place.value == sim.context(1)


def test_what_was_in_a_dead_context_is_lost(sim: Simulation) -> None:
    context = sim.get("cuCtxCreate_v2", 0, 0)
    event, stream = sim.get("cuEventCreate", 2), sim.get("cuStreamCreate", 0)
    sim.call("cuCtxDestroy_v2", context)
    assert sim.answer("cuEventQuery", event) == 709
    assert sim.answer("cuStreamQuery", stream) == 709
    assert sim.violations == []
    assert sim.get("cuCtxGetCurrent") == sim.context(0)


def test_a_primary_context_is_counted(sim: Simulation) -> None:
    before = sim.counts["retains"]
    assert sim.get("cuDevicePrimaryCtxRetain", 0) == sim.context(0)
    assert sim.counts["retains"] == before + 1
    sim.call("cuDevicePrimaryCtxRelease_v2", 0)
    flags, active = c_int32(), c_int32()
    sim.call("cuDevicePrimaryCtxGetState", 0, byref(flags), byref(active))
    assert active.value == 1
    assert sim.counts["retains"] == before


def test_a_primary_context_can_be_lost() -> None:
    code, output, errors = run_python("""
        from support.simulated_driver import simulation
        sim = simulation()
        sim.start()
        event = sim.event()
        sim.call("cuDevicePrimaryCtxReset_v2", 0)
        print(sim.answer("cuEventDestroy_v2", event.handle), sim.violations)
    """)
    assert (code, output, errors) == (0, "709 []\n", "")


def test_there_are_as_many_devices(sim: Simulation) -> None:
    assert sim.answer("cuDeviceGet", byref(c_int32()), 1) == 0
    assert sim.answer("cuDeviceGet", byref(c_int32()), 2) == 101


# Errors on demand.


def test_a_call_fails_as_often_as_told(sim: Simulation) -> None:
    a, event = sim.stream(), sim.event()
    sim.fail_next("cuEventRecord", 999, 2)
    codes = [sim.answer("cuEventRecord", event.handle, a.handle) for _ in range(3)]
    assert codes == [999, 999, 0]
    assert [c.code for c in sim.journal if c.name == "cuEventRecord"] == codes


def test_an_error_can_stick(sim: Simulation) -> None:
    event = sim.event()
    sim.set_error(700)
    assert sim.answer("cuEventQuery", event.handle) == 700
    assert sim.answer("hipInit", 0) == 700
    sim.set_error(0)
    assert event.query()


@pytest.mark.parametrize(
    ("code", "name"),
    [(0, b"CUDA_SUCCESS"), (4, b"CUDA_ERROR_DEINITIALIZED"), (12345, None)],
)
def test_errors_have_names(sim: Simulation, code: int, name: bytes | None) -> None:
    place = c_char_p()
    assert sim.answer("cuGetErrorName", code, byref(place)) == (0 if name else 1)
    assert place.value == name


# Functions by name.


def look_up(
    sim: Simulation, name: str, version: int, flags: int = 1
) -> tuple[int, int]:
    """Code and status of `cuGetProcAddress`; what it finds must be callable."""
    place, status = c_uint64(1), c_int32(-1)
    code = sim.answer(
        "cuGetProcAddress_v2",
        *(name.encode(), byref(place), version, flags, byref(status)),
    )
    assert (code == 0) == (place.value > 1)
    return code, status.value


def test_functions_are_found_by_name_and_version(sim: Simulation) -> None:
    """S19: by the name without its suffix, up to the driver's version."""
    assert look_up(sim, "cuEventDestroy", 12000) == (0, 0)
    assert look_up(sim, "cuEventDestroy_v2", 12000) == (500, 1)
    assert look_up(sim, "cuStreamGetId", 11080) == (500, 2)
    assert look_up(sim, "cuInit", 99000)[0] == 1


@pytest.mark.parametrize(
    "name", ["cuCtxGetDevice", "cuCtxSynchronize", "cuStreamGetCaptureInfo"]
)
def test_a_name_means_other_functions_in_newer_versions(
    sim: Simulation, name: str
) -> None:
    """S19: newer ones have other parameters."""
    assert look_up(sim, name, 12000) == (0, 0)
    assert look_up(sim, name, 13000) == (500, 2)


def test_what_is_found_is_what_is_exported(sim: Simulation) -> None:
    place = c_uint64()
    sim.call("cuGetProcAddress", b"cuEventQuery", byref(place), 12000, 0)
    event = sim.event()
    event.record(sim.stream())
    assert ctypes.CFUNCTYPE(ctypes.c_int, c_uint64)(place.value)(event.handle) == 600


def test_a_function_can_be_hidden() -> None:
    code, output, errors = run_python("""
        from support.simulated_driver import simulation
        from ctypes import byref, c_uint64
        sim, place = simulation(), c_uint64()
        sim.hide("cuEventQuery")
        arguments = (b"cuEventQuery", byref(place), 12000, 0)
        print(sim.answer("cuGetProcAddress", *arguments), place.value)
    """)
    assert (code, output, errors) == (0, "500 0\n", "")


# Initialization.


def test_nothing_works_before_it_is_initialized() -> None:
    code, output, errors = run_python("""
        from support.simulated_driver import simulation
        from ctypes import byref, c_int32
        sim = simulation()
        count = ("cuDeviceGetCount", byref(c_int32()))
        version = ("cuDriverGetVersion", byref(c_int32()))
        print(sim.answer(*count), sim.answer(*version))
        print(sim.answer("cuInit", 0), sim.answer(*count))
    """)
    assert (code, output, errors) == (0, "3 0\n0 0\n", "")


def test_nothing_works_after_a_fork() -> None:
    code, output, errors = run_python("""
        import os
        from support.simulated_driver import simulation
        sim = simulation()
        sim.start()
        event = sim.event()
        child = os.fork()
        if child == 0:
            calls = [("cuInit", 0), ("cuEventQuery", event.handle), ("hipInit", 0)]
            os._exit([sim.answer(*call) for call in calls] != [3, 3, 3])
        assert os.waitpid(child, 0)[1] == 0
        print(event.query())
    """)
    assert (code, output, errors) == (0, "True\n", "")


def test_a_driver_can_be_initialized_after_a_fork() -> None:
    code, output, errors = run_python("""
        import os
        from support.simulated_driver import simulation
        sim = simulation()
        child = os.fork()
        if child == 0:
            os._exit(sim.answer("cuInit", 0))
        print(os.waitpid(child, 0)[1])
    """)
    assert (code, output, errors) == (0, "0\n", "")


def test_a_reset_leaves_no_handle() -> None:
    code, output, errors = run_python("""
        from support.simulated_driver import simulation
        sim = simulation()
        sim.start()
        event = sim.event()
        sim.reset(devices=1)
        print(sim.answer("cuEventQuery", event.handle), sim.violations[0].what[:6])
        print(set(sim.counts.values()))
    """)
    assert (code, output, errors) == (0, "400 use of\n{0}\n", "")


# HIP.


def hip_event(sim: Simulation) -> int:
    """Make an event."""
    return sim.get("hipEventCreateWithFlags", 2)


def test_hip_has_no_streams_1_and_2(sim: Simulation) -> None:
    """R75: they are invalid handles, and violations."""
    event = hip_event(sim)
    for handle in (1, 2):
        assert sim.answer("hipEventRecord", event, handle) == INVALID_HANDLE
    assert len(sim.violations) == 2


def test_stream_0_of_hip_is_the_default_one(sim: Simulation) -> None:
    """R75: and joins blocking streams."""
    a, memory = sim.get("hipStreamCreateWithFlags", 0), sim.get("hipMalloc", 8)
    sim.call("hip_sim_launch", a, 1, memory, 8)
    sim.call("hip_sim_launch", 0, 1, memory, 8)
    assert (sim.races, sim.violations) == ([], [])


def test_a_pending_event_of_hip_is_not_recorded_again(sim: Simulation) -> None:
    """src/driver/event.rs: undefined on HIP, and fine on CUDA."""
    a, event = sim.get("hipStreamCreateWithFlags", 1), hip_event(sim)
    sim.call("hipEventRecord", event, a)
    sim.call("hipStreamWaitEvent", a, event, 0)
    sim.call("hipEventRecord", event, a)
    [violation] = sim.violations
    assert violation.what.endswith("is recorded again while it is pending")


def test_an_event_of_hip_that_is_done_is_recorded_again(sim: Simulation) -> None:
    a, event = sim.get("hipStreamCreateWithFlags", 1), hip_event(sim)
    sim.call("hipEventRecord", event, a)
    assert sim.answer("hipEventQuery", event) == 600
    sim.advance()
    sim.call("hipEventRecord", event, a)
    assert sim.violations == []


def test_a_pending_event_of_cuda_is_recorded_again(sim: Simulation) -> None:
    """src/driver/event.rs: fine on CUDA, and undefined on HIP."""
    a, event = sim.stream(), sim.event()
    event.record(a)
    event.record(a)
    assert sim.violations == []


def test_objects_of_hip_are_of_the_device(sim: Simulation) -> None:
    sim.call("hipSetDevice", 1)
    a, event = sim.get("hipStreamCreateWithFlags", 1), hip_event(sim)
    sim.call("hipSetDevice", 0)
    assert sim.answer("hipEventRecord", event, 0) == INVALID_HANDLE
    device = c_int32(-1)
    sim.call("hipStreamGetDevice", a, byref(device))
    assert device.value == 1
