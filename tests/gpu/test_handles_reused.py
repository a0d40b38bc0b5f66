"""Streams that are destroyed, and others that the driver gives their handles."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import dlx
import pytest

from gpu.clients import client_of
from gpu.machine import NEW, OLD, Machine, Stream, one_value
from gpu.released import settle
from gpu.report import found
from gpu.shown import Shown

CREATED, KEPT, TRIES = 100_000, 64, 8
SEARCH_S = 2.0
"""Seconds to look for a handle, fewer than a gate is closed."""


def destroy(stream: Stream) -> None:
    """Destroy a stream; its work goes on."""
    stream.driver.call("cuStreamDestroy_v2", stream.handle)


def with_the_handle_of(gpu: Machine, old: Stream) -> Stream:
    """Destroy a stream, and create others until one has its handle, or skip."""
    destroy(old)
    end = time.perf_counter() + SEARCH_S
    for turn in range(CREATED // KEPT):
        made = [Stream(gpu.driver) for _ in range(KEPT)]
        same = [stream for stream in made if stream.handle == old.handle]
        for stream in made:
            if stream not in same:
                destroy(stream)
        if same:
            found(f"a stream has the handle of one of before, after {turn * KEPT}")
            return same[0]
        if time.perf_counter() > end:
            break
    reason = f"none of {(turn + 1) * KEPT} streams has the handle of one of before"
    found(reason)
    pytest.skip(reason)


class OfTorch:
    """An array of torch, which has a table."""

    def __init__(self, gpu: Machine) -> None:
        """Import torch."""
        self._torch = client_of("torch")

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Work on a stream."""
        return self._torch.stream(stream)

    def make(self) -> Any:
        """Make the array."""
        return self._torch.full(OLD)

    def write(self, array: Any, value: float, stream: Stream) -> None:
        """Write to it."""
        self._torch.write(array, value)


class OfAnInterface:
    """An object with `__cuda_array_interface__`, which names the stream.

    A stream that it names from then on waits for what was written before (R149).
    """

    def __init__(self, gpu: Machine) -> None:
        """Take memory of the machine."""
        self._gpu, self._named = gpu, gpu.p
        self._written = gpu.driver.new_event()

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Name a stream from now on."""
        self._gpu.driver.call("cuStreamWaitEvent", stream.handle, self._written, 0)
        self._named = stream
        return nullcontext()

    def make(self) -> Any:
        """Make the object."""
        self.write(None, OLD, self._named)
        return Shown(self._gpu.memory[1], lambda: self._named.handle)

    def write(self, array: Any, value: float, stream: Stream) -> None:
        """Write to its memory."""
        self._gpu.fill(self._gpu.memory[1], value, stream)
        self._gpu.driver.call("cuEventRecord", self._written, stream.handle)


PRODUCERS: dict[str, Callable[[Machine], Any]] = {
    "torch": OfTorch,
    "interface": OfAnInterface,
}


def read_of_late_write(
    gpu: Machine, producer: str, is_ordered: bool
) -> tuple[float, bool]:
    """Read what a stream has yet to write, when another has its handle.

    A table names the new one, which knows nothing of the old; the read is there. What
    an interface names has been made to wait (R149), so the read is on S.
    """
    library, old = PRODUCERS[producer](gpu), Stream(gpu.driver)
    keywords: dict[str, Any] = {} if is_ordered else {"stream": -1}
    with library.on(old):
        array = library.make()
        library.write(array, OLD, old)
        dlx.from_dlpack(array)
        gpu.synchronize()
        with gpu.gate.closed(gpu.x):
            # The gate is not on the old stream, which the test could not wait for.
            gpu.driver.order(old.handle, gpu.x.handle)
            library.write(array, NEW, old)
            tensor = dlx.from_dlpack(array, **keywords)
            new = with_the_handle_of(gpu, old)
            reader = new if producer == "torch" else gpu.s
            with library.on(new):
                kept = tensor.__dlpack__(stream=reader.handle if is_ordered else -1)
            read = gpu.read(tensor.data_ptr, reader)
            waits = not reader.settles()
            gpu.gate.open()
            reader.synchronize()
    del kept, tensor
    settle(gpu)
    destroy(new)
    return one_value(read), waits


@pytest.mark.parametrize("producer", PRODUCERS)
def test_an_export_waits_for_a_stream_whose_handle_the_new_one_has(
    gpu: Machine, producer: str
) -> None:
    """H3, H12: the library names the new one, so equal handles prove nothing."""
    assert read_of_late_write(gpu, producer, is_ordered=True) == (NEW, True)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_without_order_a_stream_with_an_old_handle_does_not_wait(
    gpu: Machine, producer: str
) -> None:
    """H3: the control; the driver takes the two for two.

    Once is enough: the new stream may share a hardware queue with the one that waits.
    """
    tries = (read_of_late_write(gpu, producer, is_ordered=False) for _ in range(TRIES))
    assert (OLD, False) in tries


def handed_out(gpu: Machine, library: str, release: Any) -> bool:
    """Drop what S has yet to read, once its library's stream has an old handle.

    True if the library hands out the memory meanwhile.
    """
    client, old = client_of(library), Stream(gpu.driver)
    with client.stream(old):
        kept = [client.full(NEW) for _ in range(8)]
        gpu.synchronize()
        del kept
        array = client.full(OLD)
        tensor = dlx.from_dlpack(array, stream=gpu.s.handle, release=release)
        gpu.synchronize()
    new = with_the_handle_of(gpu, old)
    with client.stream(new), gpu.gate.closed(gpu.s):
        read = gpu.read(tensor.data_ptr, gpu.s)
        del array, tensor
        # One of them reuses the memory of the array, if the pool has it back.
        again = [client.full(NEW) for _ in range(8)]
        new.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    del again
    settle(gpu)
    destroy(new)
    return one_value(read) != OLD


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_memory_is_not_handed_out_on_a_stream_with_an_old_handle(
    gpu: Machine, library: str
) -> None:
    """H3, H4: the allocators know a stream by its handle."""
    assert not handed_out(gpu, library, "auto")


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_without_order_it_is_handed_out(gpu: Machine, library: str) -> None:
    """H4: the control, for which once is enough as above."""
    assert any(handed_out(gpu, library, "none") for _ in range(TRIES))
