"""Captures of libraries, in each mode: `borrow` beside them, and other threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import DLPackArray, Framework, TableArray, framework
from support.simulated_driver import Simulation
from support.simulated_kernels import held_elsewhere, read, refused
from support.simulated_objects import (
    GLOBAL,
    LEGACY,
    PER_THREAD,
    RELAXED,
    THREAD_LOCAL,
    Stream,
)

pytestmark = pytest.mark.usefixtures("running")

MODES = pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
ORDERING = {"cuStreamWaitEvent"}
"""What would draw the legacy stream into the capture."""


@MODES
def test_a_borrow_on_the_legacy_stream_is_refused_while_the_library_captures(
    sim: Simulation, array: TableArray, p: Stream, mode: int
) -> None:
    """H6 (906): torch captures on a non-blocking stream, which does not show."""
    with p.capture(mode):
        sim.clear_journal()
        with refused(p, match="captures a graph"):
            dlx.borrow(array, stream=LEGACY).__enter__()
        assert not ORDERING & set(sim.called())


@MODES
def test_a_borrow_with_a_lead_on_the_legacy_stream_is_refused_in_a_capture(
    sim: Simulation, array: TableArray, p: Stream, mode: int
) -> None:
    """H6 (906): the first array has only `__dlpack__`, so it leads there."""
    plain = framework(DLPackArray, "plain").full((4,))
    with p.capture(mode):
        sim.clear_journal()
        with refused(p, match="captures a graph"):
            dlx.borrow(plain, array).__enter__()
        assert not ORDERING & set(sim.called())


@MODES
def test_a_use_on_the_legacy_stream_is_refused_while_the_library_captures(
    array: TableArray, p: Stream, mode: int
) -> None:
    """H6 (906): the producer's new work would draw it in."""
    tensor = dlx.from_dlpack(array)
    with p.capture(mode), refused(p, match="captures a graph"):
        tensor.use(stream=LEGACY).__enter__()


Make = Callable[[Simulation, Framework, TableArray], Callable[[], Any]]


def copied_down(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Copy to the host."""
    return lambda: dlx.from_dlpack(array, device="cpu")


def copied_up(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Copy to the device."""
    s = sim.stream()
    return lambda: dlx.from_dlpack(np.zeros(4), device="cuda:0", stream=s)


def copied_across(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Copy on the device, and down from there."""
    s = sim.stream()
    return lambda: dlx.from_dlpack(array, copy=True, stream=s).to(device="cpu")


def copied_strided(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Copy columns up and down."""
    columns, s = np.zeros((4, 6), "float32")[:, ::2], sim.stream()
    return lambda: dlx.from_dlpack(columns, device="cuda:0", stream=s).to(device="cpu")


def freed_elsewhere(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Free memory of dlx in a thread without a context."""
    with dlx.stream(sim.stream()):
        held = [dlx.empty(4, "int8", device="cuda:0")]
    return lambda: in_thread(held.clear)


def copy_let_go(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Free a copy that was made under a side stream."""
    held = [dlx.from_dlpack(array, copy=True, stream=sim.stream())]
    return lambda: in_thread(held.clear)


def synchronized(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Wait for a tensor."""
    return dlx.from_dlpack(array, stream=sim.stream()).synchronize


def stream_synchronized(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Wait for a stream."""
    return dlx.Stream(sim.stream()).synchronize


def released(release: str) -> Make:
    """Release memory that a stream has used."""

    def make(sim: Simulation, library: Framework, array: TableArray) -> Any:
        s = sim.stream()
        held = [dlx.from_dlpack(array, stream=s, release=release)]  # type: ignore[arg-type]
        read(s, held[0])
        return held.clear

    return make


def released_of_a_thread(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Release memory of one thread's default stream in another."""
    held = [dlx.from_dlpack(array, stream=PER_THREAD)]
    return lambda: in_thread(held.clear)


def borrowed(sim: Simulation, library: Framework, array: TableArray) -> Any:
    """Lend and take back."""
    s = sim.stream()

    def borrow() -> None:
        with dlx.borrow(array, stream=s) as (tensor, stream):
            read(stream, tensor)

    return borrow


WORK: dict[str, Make] = {
    made.__name__: made
    for made in (
        copied_down,
        copied_up,
        copied_across,
        copied_strided,
        freed_elsewhere,
        copy_let_go,
        synchronized,
        stream_synchronized,
        released_of_a_thread,
        borrowed,
    )
} | {f"released, {name}": released(name) for name in ("auto", "record_stream")}


@MODES
@pytest.mark.parametrize("make", WORK.values(), ids=WORK)
def test_work_beside_a_capture_of_another_thread_leaves_it_intact(
    sim: Simulation, library: Framework, array: TableArray, make: Make, mode: int
) -> None:
    """H6: NVIDIA/TensorRT#2888, pytorch #104487; the end of a capture checks it."""
    captured = sim.stream()
    work = make(sim, library, array)
    with held_elsewhere(lambda: captured.begin_capture(mode), captured.end_capture):
        work()


@pytest.mark.parametrize("mode", [THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("make", WORK.values(), ids=WORK)
def test_work_beside_a_capture_of_a_blocking_stream_leaves_it_intact(
    sim: Simulation, library: Framework, array: TableArray, make: Make, mode: int
) -> None:
    """H6 (906): while it captures, nothing may use the legacy stream."""
    captured = sim.stream(blocking=True)
    work = make(sim, library, array)
    with held_elsewhere(lambda: captured.begin_capture(mode), captured.end_capture):
        work()
