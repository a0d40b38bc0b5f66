"""The simulated driver's journal, its counts, and its threads."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_uint64

from support.concurrent_threads import in_thread
from support.simulated_driver import Simulation
from support.simulated_objects import Stream


def test_the_journal_has_every_call(sim: Simulation) -> None:
    a = sim.stream()
    sim.clear_journal()
    event = sim.event()
    event.record(a)
    *_, created, popped, recorded = sim.journal
    assert created.results == [event.handle]
    assert popped.name == "cuCtxPopCurrent_v2"
    assert recorded.arguments == {"event": event.handle, "stream": a.handle}
    assert (recorded.name, recorded.code) == ("cuEventRecord", 0)
    assert [call.index for call in sim.journal] == list(range(4))


def test_the_journal_tells_callers_apart(sim: Simulation) -> None:
    """Only calls through the bare library, as dlx makes them, have no caller."""
    library = ctypes.CDLL(str(sim.path))
    library.cuCtxSynchronize()
    with sim.calls_by("framework"):
        sim.call("cuCtxSynchronize")
    sim.call("cuCtxSynchronize")
    synchronized = [c.caller for c in sim.journal if c.name == "cuCtxSynchronize"]
    assert synchronized == ["", "framework", "test"]
    assert sim.called() == ["cuCtxSynchronize"]


def test_the_journal_tells_threads_apart(sim: Simulation) -> None:
    sim.advance()
    in_thread(sim.advance)
    first, second = sim.journal
    assert first.thread != second.thread


def test_objects_are_counted(sim: Simulation) -> None:
    before = sim.counts
    a, event, memory = sim.stream(), sim.event(), sim.allocate(8)
    counts = sim.counts
    for kind in ("streams", "events", "allocations"):
        assert counts[kind] == before[kind] + 1
    a.destroy()
    event.destroy()
    memory.free()
    assert sim.counts == before


def test_a_test_starts_with_nothing(sim: Simulation) -> None:
    before = sim.counts  # Other files of this process may have made streams by hand.
    a, memory = sim.stream(), sim.allocate(8)
    a.write(memory)
    sim.host_read(memory.address, 8)
    sim.default_stream(0).record()
    sim.start()
    assert (sim.races, sim.violations, sim.journal) == ([], [], [])
    assert sim.counts["streams"] == before["streams"]


def test_threads_share_the_machine(sim: Simulation) -> None:
    streams, memory = [sim.stream() for _ in range(4)], sim.allocate(8)
    sim.clear_journal()

    def work(stream: Stream) -> None:
        for _ in range(100):
            stream.read(memory)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal = sim.journal
    assert len(journal) == 400
    by_thread = {(call.thread, call.arguments["stream"]) for call in journal}
    assert len(by_thread) == 4
    sim.host_write(memory.address, 8)
    assert len(sim.races) == 400


def test_the_journal_says_who_held_the_interpreter(sim: Simulation) -> None:
    """A call that blocks while its thread is attached blocks all of Python."""
    library = ctypes.PyDLL(str(sim.path))
    sim.clear_journal()
    sim.call("cuCtxGetCurrent", byref(c_uint64()))
    library.cuCtxGetCurrent(byref(c_uint64()))
    assert [call.gil for call in sim.journal] == [False, True]
