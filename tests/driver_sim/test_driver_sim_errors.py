"""The simulated driver after a kernel has failed: nothing works any more."""

from __future__ import annotations

from support.python_process import run_python

BEFORE = """
    from ctypes import byref, c_int32, c_uint64
    from support.simulated_contexts import green_context
    from support.simulated_driver import simulation
    from support.simulated_objects import DriverError
    sim = simulation()
    sim.start()
    a, place = sim.stream(), c_uint64()
"""


def printed(code: str) -> str:
    """Return what a new process prints."""
    status, output, errors = run_python(BEFORE + code)
    assert (status, errors) == (0, "")
    return output.strip()


def test_an_illegal_address_stays() -> None:
    """docs/streams.md, H5: record, query and frees answer 700, too."""
    assert (
        printed("""
    event, memory, pooled = a.record(), sim.allocate(8), a.allocate(8)
    a.fault()
    for call in [
        ("cuEventRecord", event.handle, a.handle),
        ("cuEventQuery", event.handle),
        ("cuStreamWaitEvent", a.handle, event.handle, 0),
        ("cuStreamIsCapturing", a.handle, byref(c_int32())),
        ("cuMemFree_v2", memory.address),
        ("cuMemFreeAsync", pooled.address, a.handle),
        ("cuEventCreate", byref(place), 2),
        ("cuCtxSynchronize",),
        ("cuCtxPushCurrent_v2", sim.context(0)),
        ("cuCtxPopCurrent_v2", None),
        ("cuDevicePrimaryCtxRetain", byref(place), 0),
    ]:
        print(sim.answer(*call), end=" ")
    """)
        == "700 " * 8 + "0 0 0"
    )


def test_an_illegal_address_outlives_the_test() -> None:
    assert (
        printed("""
    a.fault()
    sim.start()
    print(sim.answer("cuCtxSynchronize"))
    """)
        == "700"
    )


def test_an_illegal_address_is_one_of_the_device() -> None:
    assert (
        printed("""
    green, other = green_context(sim), sim.stream(1)
    b = green.stream()
    b.fault()
    print(sim.answer("cuEventRecord", 0, a.handle), end=" ")
    sim.call("cuCtxPopCurrent_v2", None)
    print(sim.answer("cuCtxPushCurrent_v2", green.handle), end=" ")
    with sim.on_device(1):
        other.synchronize()
        print("1 works")
    """)
        == "700 0 1 works"
    )


def test_a_host_function_is_not_called_after_an_error() -> None:
    """cuda.h, cuLaunchHostFunc."""
    assert (
        printed("""
    a.host_function(lambda: print("called"))
    b = sim.stream()
    b.fault()
    print(a.answer("cuStreamSynchronize", a.handle))
    sim.advance()
    """)
        == "700"
    )
