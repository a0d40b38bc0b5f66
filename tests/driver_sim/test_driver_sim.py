"""The simulated driver's order: known races are found, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.concurrent_threads import in_thread
from support.simulated_driver import Simulation, simulation
from support.simulated_objects import LEGACY, PER_THREAD, DriverError


def test_a_race_names_both_accesses(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    a.write(memory)
    b.launch(False, memory.address + 60, 4)
    [race] = sim.races
    assert (race.first.stream, race.first.write) == (a.handle, True)
    assert (race.second.stream, race.second.write) == (b.handle, False)
    assert (race.second.start, race.second.nbytes) == (memory.address + 60, 4)
    for access in (race.first, race.second):
        assert sim.journal[access.index].name == access.what == "sim_launch"
        assert sim.journal[access.index].arguments["stream"] == access.stream


def test_two_reads_are_no_race(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    a.read(memory)
    b.read(memory)
    assert sim.races == []


def test_neighbours_are_no_race(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    a.launch(True, memory.address, 32)
    b.launch(True, memory.address + 32, 32)
    assert sim.races == []


def test_a_stream_is_in_order(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(64)
    a.write(memory)
    a.write(memory)
    assert sim.races == []


def test_an_event_orders_what_was_queued_before_it(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    a.write(memory)
    b.wait(a.record())
    b.read(memory)
    assert sim.races == []


def test_an_event_orders_nothing_that_was_queued_after_it(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    event = a.record()
    a.write(memory)
    b.wait(event)
    b.read(memory)
    assert len(sim.races) == 1


def test_a_wait_takes_the_event_as_it_is_then(sim: Simulation) -> None:
    """src/driver/event.rs: an event may be recorded again right after the wait."""
    a, b, c, memory = sim.stream(), sim.stream(), sim.stream(), sim.allocate(64)
    a.write(memory)
    event = a.record()
    b.wait(event)
    event.record(c)
    b.write(memory)
    assert sim.races == []
    c.write(memory)
    assert len(sim.races) == 2


def test_order_goes_through_a_third_stream(sim: Simulation) -> None:
    a, b, c, memory = sim.stream(), sim.stream(), sim.stream(), sim.allocate(64)
    a.write(memory)
    b.wait_for(a)
    c.wait_for(b)
    c.write(memory)
    assert sim.races == []


def test_an_event_that_was_never_recorded_orders_nothing(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    a.write(memory)
    b.wait(sim.event())
    b.write(memory)
    assert len(sim.races) == 1


def test_the_host_is_ordered_by_waiting(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(64)
    a.write(memory)
    a.synchronize()
    sim.host_read(memory.address, 64)
    assert sim.races == []


def test_the_host_is_not_ordered_by_time(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(64)
    a.write(memory)
    sim.advance()
    sim.host_read(memory.address, 64)
    [race] = sim.races
    assert race.second.stream is None


def test_work_comes_after_what_the_host_did(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(64)
    sim.host_write(memory.address, 64)
    a.read(memory)
    assert sim.races == []
    sim.host_write(memory.address, 64)
    assert len(sim.races) == 1


def test_the_host_passes_order_on(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    a.write(memory)
    a.record().synchronize()
    b.write(memory)
    assert sim.races == []


def test_nothing_is_done_until_somebody_says_so(sim: Simulation) -> None:
    a, b = sim.stream(), sim.stream()
    first, second = a.record(), b.record()
    assert not first.query()
    assert not a.query()
    a.advance()
    assert first.query()
    assert a.query()
    assert not second.query()
    sim.advance()
    assert second.query()


def test_what_is_done_has_what_it_waited_for_behind_it(sim: Simulation) -> None:
    a, b = sim.stream(), sim.stream()
    event = a.record()
    b.wait(event)
    b.synchronize()
    assert event.query()


def test_a_successful_query_is_known_to_the_host(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(64)
    a.write(memory)
    event = a.record()
    sim.advance()
    assert event.query()
    sim.host_write(memory.address, 64)
    assert sim.races == []


def test_a_context_waits_for_its_streams(sim: Simulation) -> None:
    a, memory = sim.stream(), sim.allocate(64)
    other = sim.stream(1)
    a.write(memory)
    elsewhere = other.record()
    sim.call("cuCtxSynchronize")
    sim.host_write(memory.address, 64)
    assert sim.races == []
    assert not elsewhere.query()


@pytest.mark.parametrize("legacy_first", [True, False])
@pytest.mark.parametrize("blocking", [True, False])
def test_the_legacy_stream_joins_blocking_streams(
    sim: Simulation, legacy_first: bool, blocking: bool
) -> None:
    pair = [sim.default_stream(LEGACY), sim.stream(blocking=blocking)]
    memory = sim.allocate(64)
    for stream in pair if legacy_first else reversed(pair):
        stream.write(memory)
    assert len(sim.races) == (0 if blocking else 1)


def test_the_legacy_stream_orders_blocking_streams(sim: Simulation) -> None:
    a, b, memory = sim.stream(blocking=True), sim.stream(blocking=True), sim.allocate(8)
    a.write(memory)
    sim.default_stream(LEGACY).record()
    b.write(memory)
    assert sim.races == []


def test_the_legacy_stream_of_another_device_joins_nothing(sim: Simulation) -> None:
    """H7: it waits for blocking streams of its own context."""
    a, memory = sim.stream(blocking=True), sim.allocate(64)
    a.write(memory)
    with sim.on_device(1):
        sim.default_stream(LEGACY, 1).write(memory)
    assert len(sim.races) == 1


def test_each_thread_has_a_default_stream_of_its_own(sim: Simulation) -> None:
    """H8: 2 in two threads is two streams."""
    memory = sim.allocate(64)

    def write() -> None:
        sim.use_device(0)
        sim.default_stream(PER_THREAD).write(memory)

    write()
    write()
    assert sim.races == []
    in_thread(write)
    assert len(sim.races) == 2
    assert sim.races[0].first.stream == sim.races[0].second.stream == PER_THREAD


def test_stream_0_is_ambiguous_and_legacy(sim: Simulation) -> None:
    """R74, R148: a violation, and then taken for 1."""
    sim.default_stream(0).record()
    assert {violation.what.split(":")[0] for violation in sim.violations} == {
        "ambiguous stream 0"
    }
    assert sim.journal[sim.violations[0].index].name == "cuEventRecord"


def test_a_dead_stream_is_a_violation(sim: Simulation) -> None:
    """H3: and the call fails."""
    a, event = sim.stream(), sim.event()
    a.destroy()
    with pytest.raises(DriverError, match="cuEventRecord: 400"):
        event.record(a)
    [violation] = sim.violations
    assert violation.what == f"use of dead stream {a.handle:#x}"


def test_work_of_a_dead_stream_goes_on(sim: Simulation) -> None:
    a, b, memory = sim.stream(), sim.stream(), sim.allocate(64)
    a.write(memory)
    event = a.record()
    a.destroy()
    assert not event.query()
    b.wait(event)
    b.write(memory)
    assert sim.races == []
    assert sim.violations == []


def test_a_dead_event_is_a_violation(sim: Simulation) -> None:
    a = sim.stream()
    event = a.record()
    event.destroy()
    with pytest.raises(DriverError, match="400"):
        a.wait(event)
    [violation] = sim.violations
    assert violation.what.startswith("use of dead event")


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("rwjs"), st.integers(0, 3)),
    max_size=20,
)


@given(STEPS)
@settings(suppress_health_check=list(HealthCheck))
def test_a_race_is_what_no_path_orders(
    steps: list[tuple[int, str, int]],
) -> None:
    """Random programs of reads, writes, joins and waits, beside a search for paths."""
    sim = simulation()
    sim.start()
    streams, blocks = (
        [sim.stream() for _ in range(4)],
        [sim.allocate(8) for _ in "1234"],
    )
    nodes: list[tuple[int, bool | None]] = []  # Block and write, or None
    edges: dict[int, set[int]] = {}
    last: dict[int, set[int]] = {index: set() for index in range(4)}
    host: set[int] = set()
    expected = 0

    def reached(node: int) -> set[int]:
        seen: set[int] = set()
        todo = [node]
        while todo:
            for before in edges[todo.pop()] - seen:
                seen.add(before)
                todo.append(before)
        return seen

    for number, action, other in steps:
        if action == "j":
            streams[number].wait_for(streams[other])
            last[number] = last[number] | last[other]
        elif action == "s":
            streams[number].synchronize()
            host |= last[number]
        else:
            node = len(nodes)
            write = action == "w"
            streams[number].launch(write, blocks[other].address, 8)
            edges[node] = last[number] | host
            before = reached(node)
            expected += sum(
                block == other and (write or wrote) and earlier not in before
                for earlier, (block, wrote) in enumerate(nodes)
                if wrote is not None
            )
            nodes.append((other, write))
            last[number] = {node}
    assert len(sim.races) == expected
