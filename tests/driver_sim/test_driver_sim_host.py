"""Host functions and full queues on the simulated driver, and who waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.python_process import run_python
from support.simulated_driver import Simulation

NOT_PERMITTED = 800


@contextmanager
def meanwhile(function: object) -> Iterator[None]:
    """Call a function in another thread, which ends after the block."""
    thread = threading.Thread(target=function)  # type: ignore[arg-type]
    thread.start()
    yield
    thread.join()


def test_a_host_function_runs_when_its_stream_comes_to_it(sim: Simulation) -> None:
    a, ran = sim.stream(), list[str]()
    a.host_function(lambda: ran.append("first"))
    a.host_function(lambda: ran.append("second"))
    assert ran == []
    a.synchronize()
    assert ran == ["first", "second"]


def test_a_host_function_runs_in_a_thread_of_the_driver(sim: Simulation) -> None:
    a, threads = sim.stream(), list[int]()
    a.host_function(lambda: threads.append(threading.get_ident()))
    a.synchronize()
    assert threads != [threading.get_ident()]


def test_a_host_function_comes_after_what_its_stream_waited_for(
    sim: Simulation,
) -> None:
    a, b, done = sim.stream(), sim.stream(), list[str]()
    a.host_function(lambda: done.append("a"))
    b.wait(a.record())
    b.host_function(lambda: done.append("b"))
    b.synchronize()
    assert done == ["a", "b"]


def test_a_host_function_holds_up_what_is_queued_behind_it(sim: Simulation) -> None:
    a, go, started = sim.stream(), threading.Event(), threading.Event()
    before = a.record()
    a.host_function(started.set, go.wait)
    behind = a.record()
    with meanwhile(a.advance):
        started.wait()
        assert before.query()
        assert not behind.query()
        go.set()
    assert behind.query()


@pytest.mark.parametrize("name", ["cuEventQuery", "cuCtxSynchronize", "cuCtxGetDevice"])
def test_a_host_function_may_not_call_the_driver(sim: Simulation, name: str) -> None:
    """docs/streams.md, H5: whatever the call is."""
    a, event, codes = sim.stream(), sim.event(), list[int]()
    a.host_function(lambda: codes.append(sim.answer(name, event.handle)))
    a.synchronize()
    assert codes == [NOT_PERMITTED]


def test_a_captured_host_function_does_not_run(sim: Simulation) -> None:
    a, ran = sim.stream(), list[int]()
    with a.capture():
        a.host_function(lambda: ran.append(1))
    sim.advance()
    assert ran == []


def test_a_full_queue_waits_for_its_oldest_work(sim: Simulation) -> None:
    a = sim.stream()
    a.bound(2)
    events = [a.record() for _ in range(3)]
    assert [event.query() for event in events] == [True, False, False]


def test_a_call_waits_while_a_host_function_holds_up_a_full_queue(
    sim: Simulation,
) -> None:
    a, go, order = sim.stream(), threading.Event(), list[str]()
    a.bound(1)
    a.host_function(go.wait, lambda: order.append("function"))

    def record() -> None:
        sim.use_device(0)
        a.record()
        order.append("record")

    with meanwhile(record):
        assert order == []
        go.set()
    assert order == ["function", "record"]
    [recorded] = [call for call in sim.journal if call.name == "cuEventRecord"]
    assert recorded.waited


def test_a_capture_has_no_queue(sim: Simulation) -> None:
    a = sim.stream()
    a.bound(1)
    first = a.record()
    with a.capture():
        a.record()
        a.record()
    assert not first.query()


def test_a_driver_may_hold_its_lock_while_a_host_function_runs(sim: Simulation) -> None:
    """Then calls that queue nothing wait as well."""
    a, other, go = sim.stream(), sim.event(), threading.Event()
    started, order = threading.Event(), list[str]()
    sim.lock_functions()
    a.host_function(started.set, go.wait, lambda: order.append("function"))

    def query() -> None:
        started.wait()
        other.query()
        order.append("query")

    with meanwhile(a.advance), meanwhile(query):
        started.wait()
        assert order == []
        go.set()
    assert order == ["function", "query"]


@pytest.mark.parametrize("function", ["cuStreamSynchronize", "cuEventRecord"])
def test_a_caller_that_holds_the_gil_is_reported(function: str) -> None:
    """The function ahead waits for the GIL: nothing would ever go on."""
    code, _, errors = run_python(f"""
        import ctypes
        from ctypes import c_size_t
        from support.simulated_driver import simulation
        sim = simulation()
        sim.start()
        a, event = sim.stream(), sim.event()
        a.bound(1)
        a.host_function(lambda: None)
        call = getattr(ctypes.PyDLL(str(sim.path)), {function!r})
        handles = [event.handle, a.handle][-call.__name__.count("Event") - 1:]
        call(*map(c_size_t, handles))
    """)
    assert code != 0
    assert (
        f"driver_sim: deadlock: {function} waits for a host function, which" in errors
    )


def test_a_host_function_that_does_not_end_is_reported() -> None:
    code, _, errors = run_python("""
        import threading
        from support.simulated_driver import simulation
        sim = simulation()
        sim.start()
        sim.limit(0)
        a = sim.stream()
        a.host_function(threading.Event().wait)
        a.synchronize()
    """)
    assert code != 0
    assert "driver_sim: deadlock: cuStreamSynchronize has waited 0 s" in errors


def test_the_journal_tells_who_held_the_gil() -> None:
    code, output, errors = run_python("""
        import ctypes
        from support.simulated_driver import simulation
        sim = simulation()
        sim.start()
        ctypes.PyDLL(str(sim.path)).cuCtxSynchronize()
        ctypes.CDLL(str(sim.path)).cuCtxSynchronize()
        print([call.gil for call in sim.journal])
    """)
    assert (code, output, errors) == (0, "[True, False]\n", "")


def test_a_test_starts_without_host_functions(sim: Simulation) -> None:
    a, ran = sim.stream(), list[int]()
    a.host_function(lambda: ran.append(1))
    sim.start()
    sim.advance()
    assert ran == []


def test_a_stream_is_bounded_until_the_test_ends(sim: Simulation) -> None:
    a = sim.stream()
    a.bound(1)
    a.bound(0)
    assert not any(event.query() for event in [a.record() for _ in range(3)])
