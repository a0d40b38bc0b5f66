"""Streams of a green context, beside those of the primary one.

A stream of either kind waits for one of the other, and memory goes back behind it.
Drivers before CUDA 12.4, and some machines, have no green contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dlx
import numpy as np
import pytest

from gpu import hazards
from gpu.clients import client_of
from gpu.driver import DriverError
from gpu.green import (
    PER_THREAD,
    WAYS,
    Green,
    GreenStream,
    green_of,
    use_kernels,
    warm_up,
)
from gpu.host_functions import lost, used
from gpu.machine import COUNT, NEW, OLD, Machine, Stream, one_value
from gpu.report import found

LIBRARIES = ["torch", "cupy"]
ROUNDS = 100
SETTLED_S = 0.02


@pytest.fixture
def green(gpu: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Green]:
    """Give a green context, or skip the test with the driver's answer."""
    if not gpu.driver.has("cuGreenCtxStreamCreate"):
        pytest.skip(f"no green contexts in a driver for CUDA {gpu.driver.version()}")
    try:
        made = green_of(gpu)
    except DriverError as error:
        found(f"no green context: {error}")
        pytest.skip(f"no green context: {error}")
    use_kernels(gpu, made, monkeypatch)
    warm_up(gpu, made)
    yield made
    gpu.driver.call("cuCtxSetCurrent", gpu.context)


@pytest.fixture(params=WAYS)
def g(green: Green, request: pytest.FixtureRequest) -> GreenStream:
    """Give a stream of it."""
    return green.streams[request.param][0]


def tensor_on(stream: Stream, address: int) -> dlx.Tensor:
    """Return a tensor that becomes ready on a stream."""
    return dlx.from_pointer(
        address, (COUNT,), "float32", device="cuda:0", stream=dlx.Stream(stream)
    )


Order = Callable[[dlx.Tensor, Stream, Stream], object]
ORDERS: dict[str, Order] = {
    "import": lambda tensor, reader, _: dlx.from_dlpack(tensor, stream=reader),
    "export": lambda tensor, reader, _: tensor.__dlpack__(stream=reader.handle),
    "wait": lambda _, reader, writer: dlx.Stream(reader).wait(writer),
    "none": lambda tensor, *_: dlx.from_dlpack(tensor, stream=-1),
}


def read_of_late_write(
    gpu: Machine, writer: Stream, reader: Stream, order: str
) -> tuple[float, bool]:
    """Read what another stream has yet to write; return it, and if the reader waits."""
    address = gpu.memory[1]
    gpu.fill(address, OLD, writer)
    writer.synchronize()
    tensor = tensor_on(writer, address)
    ORDERS[order](tensor, reader, writer)
    with gpu.gate.closed(writer):
        gpu.fill(address, NEW, writer)
        kept = ORDERS[order](tensor, reader, writer)
        read = gpu.read(address, reader)
        waits = not reader.settles(SETTLED_S)
        gpu.gate.open()
        reader.synchronize()
    del kept
    return one_value(read), waits


def directions(gpu: Machine, green: Green, g: GreenStream) -> dict[str, Any]:
    """Return each kind of writer and reader."""
    other = green.streams[WAYS[0]][1]
    return {"to": (gpu.p, g), "back": (g, gpu.s), "within": (g, other)}


@pytest.mark.parametrize("order", ["import", "export", "wait"])
@pytest.mark.parametrize("direction", ["to", "back", "within"])
def test_a_stream_waits_for_one_of_another_context(
    gpu: Machine, green: Green, g: GreenStream, direction: str, order: str
) -> None:
    """H7, R83: a green stream for one of the primary context, the reverse, or one."""
    writer, reader = directions(gpu, green, g)[direction]
    assert read_of_late_write(gpu, writer, reader, order) == (NEW, True)


@pytest.mark.parametrize("direction", ["to", "back", "within"])
def test_without_order_it_does_not_wait(
    gpu: Machine, green: Green, g: GreenStream, direction: str
) -> None:
    """The control."""
    writer, reader = directions(gpu, green, g)[direction]
    assert read_of_late_write(gpu, writer, reader, "none") == (OLD, False)


def test_events_of_each_context_order_each_its_own(
    gpu: Machine, g: GreenStream
) -> None:
    """docs/streams.md, The rules: 200 values go from P by a green stream to S."""
    first, second = gpu.memory[1], gpu.memory[2]
    for turn in range(200):
        gpu.synchronize()
        with gpu.gate.closed(gpu.p):
            gpu.fill(first, float(turn), gpu.p)
            taken = dlx.from_dlpack(tensor_on(gpu.p, first), stream=g)
            gpu.copy(second, taken.data_ptr, g)
            again = dlx.from_dlpack(tensor_on(g, second), stream=gpu.s)
            read = gpu.read(again.data_ptr, gpu.s)
            gpu.gate.open()
            gpu.s.synchronize()
        assert one_value(read) == turn


def strikes(hazard: str, library: str, order: str) -> int:
    """Count the strikes of a hazard, in which P or S is a green stream."""
    client_of(library)
    count = hazards.count(hazard, library, order, ROUNDS)
    found(f"green, {hazard} {library} {order}: strikes in {count} of {ROUNDS}")
    return count


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("role", ["s", "p"], ids=["consumer", "producer"])
@pytest.mark.parametrize(
    ("hazard", "order"), [("mutate", "borrow"), ("mutate", "use"), ("free", "auto")]
)
def test_no_hazard_strikes_on_a_green_stream(
    gpu: Machine,
    g: GreenStream,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    hazard: str,
    order: str,
    library: str,
) -> None:
    """H1, H4: S, where the kernel waits to read, or P, which the library works on."""
    monkeypatch.setattr(gpu, role, g)
    assert strikes(hazard, library, order) == 0


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("role", ["s", "p"], ids=["consumer", "producer"])
@pytest.mark.parametrize("hazard", ["mutate", "free"])
def test_without_order_they_strike(
    gpu: Machine,
    g: GreenStream,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    hazard: str,
    library: str,
) -> None:
    """The control."""
    monkeypatch.setattr(gpu, role, g)
    assert strikes(hazard, library, "none") > 0


def test_memory_of_a_green_stream_is_let_go_in_another_thread(
    gpu: Machine, green: Green, g: GreenStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4, H5: the green context is current here, and may be in one thread only."""
    client = client_of("torch")
    monkeypatch.setattr(gpu, "s", g)
    with client.stream(gpu.p):
        probe = client.full(OLD)
        hazards.free(gpu, client, "none")
        before = used(client)
        array = client.full(OLD)
        gpu.synchronize()
        with gpu.gate.closed(g):
            held = [dlx.from_dlpack(array, stream=g)]
            seen = gpu.read(held[0].data_ptr, g)
            del array
            with green.current(), ThreadPoolExecutor(1) as thread:
                thread.submit(held.clear).result()
            again = [client.full(NEW) for _ in range(8)]
            gpu.p.settles()
            gpu.gate.open()
            g.synchronize()
        del again
        left = lost(gpu, client, probe, before)
    assert (one_value(seen), left) == (OLD, 0)


@pytest.mark.parametrize("order", ["import", "export", "wait"])
@pytest.mark.parametrize("direction", ["to", "back"])
def test_the_legacy_stream_is_that_of_the_green_context_that_is_current(
    gpu: Machine, green: Green, direction: str, order: str
) -> None:
    """H8: as under torch's `GreenContext.set_context` (pytorch#185527)."""
    there = green.default
    writer, reader = (gpu.p, there) if direction == "to" else (there, gpu.s)
    with green.current():
        assert read_of_late_write(gpu, writer, reader, order) == (NEW, True)


@pytest.mark.parametrize("direction", ["to", "back"])
def test_without_order_the_legacy_stream_of_a_green_context_does_not_wait(
    gpu: Machine, green: Green, direction: str
) -> None:
    """The control."""
    there = green.default
    writer, reader = (gpu.p, there) if direction == "to" else (there, gpu.s)
    with green.current():
        assert read_of_late_write(gpu, writer, reader, "none") == (OLD, False)


def test_the_threads_own_stream_of_a_green_context_is_refused_or_ordered(
    gpu: Machine, green: Green
) -> None:
    """H8: it has none (`cuStreamGetCtx_v2`); if a driver has one, nothing races."""
    stream = GreenStream(green, PER_THREAD)
    with green.current():
        try:
            said = read_of_late_write(gpu, gpu.p, stream, "import")
        except (BufferError, ValueError, dlx.CudaError) as error:
            found(f"stream 2 under a green context: {error}")
        else:
            found("stream 2 under a green context is ordered")
            assert said == (NEW, True)


def test_the_current_context_stays(gpu: Machine, green: Green, g: GreenStream) -> None:
    """H5: dlx leaves the thread as it was, and other threads may have the context."""
    driver, tensor = gpu.driver, tensor_on(gpu.p, gpu.memory[1])
    with green.current():
        dlx.from_dlpack(tensor, stream=g)
        assert driver.get("cuCtxGetCurrent") == green.context
    assert driver.get("cuCtxGetCurrent") == gpu.context
    dlx.from_dlpack(tensor, stream=g)
    assert driver.get("cuCtxGetCurrent") == gpu.context

    def elsewhere() -> bool:
        with green.current():
            return driver.get("cuCtxGetCurrent") == green.context

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(elsewhere).result()


def test_a_copy_to_the_host_comes_after_the_work_of_a_green_stream(
    gpu: Machine, g: GreenStream
) -> None:
    """R55: when the call returns, it contains what that stream had queued."""
    address = gpu.memory[1]
    gpu.fill(address, OLD, g)
    tensor = tensor_on(g, address)
    dlx.from_dlpack(tensor, device="cpu")
    with gpu.gate.closed(g), gpu.gate.opened_after(0.1):
        gpu.fill(address, NEW, g)
        copied = dlx.from_dlpack(tensor, device="cpu")
    assert one_value(copied.numpy().tolist()) == NEW


def test_a_copy_to_the_device_is_in_the_order_of_a_green_stream(
    gpu: Machine, g: GreenStream
) -> None:
    """R50: a read behind it sees the elements, and other streams do not matter."""
    source = np.full(COUNT, NEW, np.float32)
    dlx.from_dlpack(source, device="cuda:0", stream=g)
    with gpu.gate.closed(gpu.p):
        copied = dlx.from_dlpack(source, device="cuda:0", stream=g)
        read = gpu.read(copied.data_ptr, g)
        assert g.settles(1.0), "the copy waits for a stream that it does not need"
    assert one_value(read) == NEW


def test_memory_of_dlx_is_allocated_and_freed_on_a_green_stream(
    gpu: Machine, g: GreenStream
) -> None:
    """docs/streams.md, Copies: in the order of that stream, and nothing is lost."""

    def use() -> Any:
        with dlx.stream(g):
            made = dlx.empty(COUNT, "float32", device="cuda:0")
            gpu.fill(made.data_ptr, NEW, g)
            return gpu.read(made.data_ptr, g)

    use()
    gpu.synchronize()
    before = gpu.driver.used_by_the_pool()
    reads = [use() for _ in range(16)]
    g.synchronize()
    assert [one_value(read) for read in reads] == [NEW] * 16
    assert gpu.driver.used_by_the_pool() == before
