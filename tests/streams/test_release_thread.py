"""The thread that releases memory, with no further call into dlx (H4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import dlx
import pytest
from support import cuda_producers
from support.concurrent_threads import THREADS, together
from support.cuda_producers import Framework, TableArray, framework
from support.simulated_driver import RELEASE, Simulation
from support.simulated_kernels import OwnStream, read, settle, until
from support.simulated_objects import GLOBAL, RELAXED, Stream

INVALID_VALUE = 1


def threads() -> list[str]:
    """Return the names of this process's threads."""
    names = []
    for name in Path("/proc/self/task").glob("*/comm"):
        # One may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append(name.read_text().strip())
    return names


def is_released(array: TableArray, s: Stream) -> bool:
    """Let the work of a stream be done; return whether the memory is given back."""
    s.advance()
    return array.deleted == 1


def test_memory_is_released_with_no_further_call(
    sim: Simulation, library: Framework
) -> None:
    """H4: a thread asks, and ends when nothing waits."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        read(s, dlx.from_dlpack(array, stream=s))
        until(lambda: "dlx-release" in threads())
        s.advance()
        until(lambda: array.deleted == 1)
        until(lambda: "dlx-release" not in threads())
        assert sim.called(RELEASE).count("cuEventQuery") > 0


@pytest.mark.parametrize("devices", [(0, 0), (0, 1)])
def test_no_memory_waits_behind_that_of_another_stream(
    sim: Simulation, devices: tuple[int, int]
) -> None:
    """H4: a long kernel on one stream, and short ones on another or its device."""
    library = framework(TableArray)
    long, short = (sim.stream(device) for device in devices)
    arrays = []
    for s in (long, *[short] * 9):
        with sim.on_device(s.device), library.stream(sim.stream(s.device)):
            arrays.append(library.full((4,), device=s.device))
            read(s, dlx.from_dlpack(arrays[-1], stream=s))
    short.advance()
    until(lambda: [array.deleted for array in arrays[1:]] == [1] * 9)
    assert arrays[0].deleted == 0


def test_an_entry_that_comes_while_the_thread_rests_wakes_it(
    sim: Simulation, library: Framework
) -> None:
    """H4: a kernel that never ends does not slow the others down."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        read(s, dlx.from_dlpack(array, stream=s))
        sleep(0.2)
        sim.clear_journal()
        t = sim.stream()
        dlx.from_dlpack(library.full((4,)), stream=t)
        until(lambda: sim.called(RELEASE).count("cuEventQuery") > 1)
        assert array.deleted == 0


@pytest.fixture
def dropped(sim: Simulation, library: Framework) -> Iterator[tuple[TableArray, Stream]]:
    """Give an array whose tensor died while its stream captured; the thread waits.

    It has found a stream that did not capture yet, and recorded a point there.
    """
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        tensor = dlx.from_dlpack(array, stream=s)
        s.begin_capture(GLOBAL)
        sim.fail_next("cuStreamIsCapturing", 0, by=RELEASE)
        del tensor
        # A query of that point in the capture would break it.
        until(lambda: sim.called(RELEASE).count("cuStreamIsCapturing") >= 4)
        assert "cuEventRecord" in sim.called(RELEASE)
        s.end_capture()
        yield array, s


def test_a_capture_that_begins_while_a_point_is_recorded_keeps_no_memory(
    sim: Simulation, dropped: tuple[TableArray, Stream]
) -> None:
    """H4, H6: the event is the capture's then, and never done."""
    until(lambda: is_released(*dropped))
    assert sim.violations == []


def test_a_late_point_that_the_driver_does_not_know_is_recorded_again(
    sim: Simulation, dropped: tuple[TableArray, Stream]
) -> None:
    """H4, H6: one of a capture that has begun and ended meanwhile is never done."""
    recorded = sim.called(RELEASE).count("cuEventRecord")
    sim.fail_next("cuEventQuery", INVALID_VALUE, 3, by=RELEASE)
    until(lambda: sim.called(RELEASE).count("cuEventRecord") >= recorded + 3)
    until(lambda: is_released(*dropped))


def test_of_two_threads_that_look_the_first_gives_the_memory_back(
    sim: Simulation, library: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: in the relaxed mode, as a deleter that frees breaks captures of others."""
    begun, goes_on = Event(), Event()
    modes, release = list[int](), cuda_producers._release

    class Slow(OwnStream):
        def __del__(self) -> None:
            begun.set()
            goes_on.wait(60)
            super().__del__()

    def noted(*arguments: Any) -> None:
        modes.append(sim.capture_mode(RELAXED))
        sim.capture_mode(modes[-1])
        release(*arguments)

    def is_looked_at() -> bool:
        s.advance()
        return begun.is_set()

    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        array.tensor.shape[0] = 1 << 29  # more than may wait
        tensor = dlx.from_dlpack(array, stream=Slow(s))
        with s.capture():
            del tensor
        until(is_looked_at)
        with monkeypatch.context() as patched:
            patched.setattr(cuda_producers, "_release", noted)
            dlx.from_dlpack(library.full((4,)), stream=sim.stream())
            goes_on.set()
            until(lambda: array.deleted == 1 and len(modes) > 0)
        assert modes[0] == RELAXED


def test_threads_that_drop_at_once_lose_nothing(
    sim: Simulation, library: Framework
) -> None:
    """H4, H5: with and without a GIL, while the thread that releases runs."""
    streams = [sim.stream() for _ in range(THREADS)]

    def work(index: int) -> list[TableArray]:
        sim.use_device(0)
        arrays = []
        with library.stream(sim.stream()):
            for _ in range(50):
                array = library.full((4,))
                read(streams[index], dlx.from_dlpack(array, stream=streams[index]))
                arrays.append(array)
                if index % 2:
                    streams[index].advance()
        return arrays

    made = [array for arrays in together(work) for array in arrays]
    settle(sim)
    assert [array.deleted for array in made] == [1] * len(made)
    assert sim.races == []


def test_idle_events_are_bounded(sim: Simulation, library: Framework) -> None:
    """H4: each tensor that is kept holds one; of those that have died 1024 stay."""
    with library.stream(sim.stream()):
        array = library.full((1,))
        kept = [dlx.from_dlpack(array) for _ in range(3000)]
        most = sim.counts["events"]
        kept.clear()
    assert most - sim.counts["events"] >= 3000 - 1024


def test_idle_events_of_a_device_leave_room_for_those_of_another(
    sim: Simulation, library: Framework
) -> None:
    """H4: each context has a bound of its own."""
    for device in (0, 1):
        with sim.on_device(device), library.stream(sim.stream(device)):
            array = library.full((1,), device=device)
            for _ in range(2):
                sim.clear_journal()
                kept = [dlx.from_dlpack(array) for _ in range(1024)]
                kept.clear()
    assert "cuEventCreate" not in sim.called()
