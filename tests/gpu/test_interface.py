"""`__cuda_array_interface__` where the stream that it names is a difficult one.

It is the default stream of a thread, or none, or another at each reading.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dlx
import pytest

from gpu.machine import NEW, OLD, Machine, Stream, one_value
from gpu.numba_streams import PER_THREAD, DefaultStream
from gpu.released import settle
from gpu.report import found
from gpu.shown import Shown

OPENED_S = 0.2
"""Seconds until the gate is opened, for calls that may wait."""


def elsewhere(gpu: Machine, call: Callable[[], Any]) -> Any:
    """Make a call in another thread, where the machine's context is current."""

    def run() -> Any:
        gpu.driver.call("cuCtxSetCurrent", gpu.context)
        return call()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def late_write(
    gpu: Machine, stream: Stream, order: Callable[[], object]
) -> tuple[float, bool]:
    """Read on S what another stream has yet to write; return it, and if S waits."""
    gpu.fill(gpu.memory[1], OLD, stream)
    gpu.synchronize()
    with gpu.gate.closed(stream):
        gpu.fill(gpu.memory[1], NEW, stream)
        kept = order()
        read = gpu.read(gpu.memory[1], gpu.s)
        waits = not gpu.s.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    del kept
    return one_value(read), waits


def early_write(
    gpu: Machine, order: Callable[[Callable[[], None]], object], *writers: Stream
) -> float:
    """Write what S has yet to read, which `order` has it do; return what it has read.

    The gate opens after a while, because the order may wait on the host.
    """
    reads = []
    gpu.fill(gpu.memory[1], OLD, gpu.p)
    gpu.synchronize()
    with gpu.gate.closed(gpu.s), gpu.gate.opened_after(OPENED_S):
        order(lambda: reads.append(gpu.read(gpu.memory[1], gpu.s)))
        for writer in writers:
            gpu.fill(gpu.memory[1], NEW, writer)
    gpu.synchronize()
    return one_value(reads[0])


# 2, in another thread.


def per_thread(gpu: Machine) -> tuple[Shown, DefaultStream]:
    """Return an object that names this thread's default stream, and that stream."""
    shown = Shown(gpu.memory[1], lambda: PER_THREAD)
    return shown, DefaultStream(gpu, PER_THREAD)


def test_an_export_in_another_thread_waits_for_the_threads_own_stream(
    gpu: Machine,
) -> None:
    """H8: the point that it had reached at the import, in its own thread."""
    shown, own = per_thread(gpu)

    def order() -> Any:
        tensor = dlx.from_dlpack(shown)
        return elsewhere(gpu, lambda: tensor.__dlpack__(stream=gpu.s.handle))

    assert late_write(gpu, own, order) == (NEW, True)


def test_an_import_in_another_thread_does_not_name_that_stream(gpu: Machine) -> None:
    """H8: the control; there 2 is another stream, and the object is wrong."""
    shown, own = per_thread(gpu)

    def order() -> Any:
        return elsewhere(gpu, lambda: dlx.from_dlpack(shown, stream=gpu.s))

    assert late_write(gpu, own, order) == (OLD, False)


def test_a_tensor_for_the_threads_own_stream_is_refused_or_ordered_elsewhere(
    gpu: Machine,
) -> None:
    """H8: its stream has no name in another thread."""
    shown, own = per_thread(gpu)

    def order() -> Any:
        tensor = dlx.from_dlpack(shown, stream=PER_THREAD)
        return elsewhere(gpu, lambda: tensor.__dlpack__(stream=gpu.s.handle))

    said: Any
    try:
        said = late_write(gpu, own, order)
    except BufferError as error:
        said = str(error)
    found(f"a tensor for stream 2, exported in another thread: {said}")
    assert said == (NEW, True) or "another thread" in said


def drop_elsewhere(gpu: Machine, release: Any) -> float:
    """Drop in another thread what S has yet to read, and write on this thread's own."""
    shown, own = per_thread(gpu)

    def order(read: Callable[[], None]) -> None:
        held = [dlx.from_dlpack(shown, stream=gpu.s, release=release)]
        read()
        elsewhere(gpu, held.clear)

    return early_write(gpu, order, own)


def test_the_threads_own_stream_waits_for_a_drop_in_another_thread(
    gpu: Machine,
) -> None:
    """H8, R150: by the legacy stream, for which every thread's own waits."""
    assert drop_elsewhere(gpu, "auto") == OLD


def test_without_order_the_threads_own_stream_does_not_wait(gpu: Machine) -> None:
    """H1: the control."""
    assert drop_elsewhere(gpu, "none") == NEW


# No stream.


def test_version_2_without_a_stream_has_no_work_to_wait_for(gpu: Machine) -> None:
    """R148: S does not wait, also if the object is wrong."""
    shown = Shown(gpu.memory[1], None, version=2)
    seen = late_write(gpu, gpu.p, lambda: dlx.from_dlpack(shown, stream=gpu.s))
    assert seen == (OLD, False)


@pytest.mark.parametrize("release", ["auto", "none"])
def test_version_2_is_held_until_the_stream_is_done(gpu: Machine, release: Any) -> None:
    """H4: nobody can be made to wait; with "none", the control, it is let go."""
    shown = Shown(gpu.memory[1], None, version=2)
    gone = weakref.ref(shown)
    with gpu.gate.closed(gpu.s):
        tensor = dlx.from_dlpack(shown, stream=gpu.s, release=release)
        gpu.read(tensor.data_ptr, gpu.s)
        del shown, tensor
        gc.collect()
        is_held = gone() is not None
        assert not gpu.s.is_done()
    settle(gpu)
    assert is_held == (release == "auto")
    assert gone() is None


# Another stream at each reading.


def moving(gpu: Machine) -> Shown:
    """Return an object that names P, and from the second reading on X.

    X waits for P then, as the interface demands (R149).
    """
    readings = list[None]()

    def names() -> int:
        readings.append(None)
        if len(readings) == 2:
            gpu.driver.order(gpu.x.handle, gpu.p.handle)
        return gpu.p.handle if len(readings) == 1 else gpu.x.handle

    return Shown(gpu.memory[1], names)


ORDERS: dict[str, Callable[[Machine], object]] = {
    "import": lambda gpu: dlx.from_dlpack(moving(gpu), stream=gpu.s),
    "export": lambda gpu: dlx.from_dlpack(moving(gpu)).__dlpack__(stream=gpu.s.handle),
    "none": lambda gpu: dlx.from_dlpack(moving(gpu), stream=-1),
}


@pytest.mark.parametrize("how", ["import", "export"])
def test_the_work_of_both_streams_that_were_named_is_waited_for(
    gpu: Machine, how: str
) -> None:
    """R149: whichever reading dlx takes."""
    assert late_write(gpu, gpu.p, lambda: ORDERS[how](gpu)) == (NEW, True)


def test_without_order_neither_is_waited_for(gpu: Machine) -> None:
    """R76: the control."""
    assert late_write(gpu, gpu.p, lambda: ORDERS["none"](gpu)) == (OLD, False)


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_block_waits_for_the_work_of_both(gpu: Machine, is_ordered: bool) -> None:
    """R149: what it reads is what P writes late; with `stream=-1` it is not."""
    gpu.fill(gpu.memory[1], OLD, gpu.p)
    gpu.synchronize()
    stream: Any = gpu.s if is_ordered else -1
    # The end of the block may wait on the host, since another stream is named.
    with gpu.gate.closed(gpu.p), gpu.gate.opened_after(OPENED_S):
        gpu.fill(gpu.memory[1], NEW, gpu.p)
        with dlx.borrow(moving(gpu), stream=stream):
            read = gpu.read(gpu.memory[1], gpu.s)
        gpu.s.synchronize()
    assert one_value(read) == (NEW if is_ordered else OLD)


@pytest.mark.parametrize("is_ordered", [True, False])
def test_after_a_block_both_streams_wait(gpu: Machine, is_ordered: bool) -> None:
    """H1: the object names P at the beginning and X at the end; `stream=-1` races."""
    named = [gpu.p]
    shown = Shown(gpu.memory[1], lambda: named[-1].handle)

    def order(read: Callable[[], None]) -> None:
        stream: Any = gpu.s if is_ordered else -1
        with dlx.borrow(shown, stream=stream):
            read()
            named.append(gpu.x)

    assert early_write(gpu, order, gpu.x, gpu.p) == (OLD if is_ordered else NEW)
