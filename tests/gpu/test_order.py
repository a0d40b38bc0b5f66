"""A consumer sees what its producer has queued.

A gate blocks the producer's stream P before it writes NEW over OLD. A read on S that
waits for P sees NEW; one that does not sees OLD while the gate is still closed.
"""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.python_process import run_python

from gpu.clients import client_of
from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.report import found

PRODUCERS = ["torch", "cupy", "numba"]
CONSUMERS = ["torch", "cupy", "cuda.core"]


def read_of_late_write(gpu: Machine, library: str, way: str) -> tuple[float, bool]:
    """Read on S what `library` has yet to write on P; return the value, and if S waits.

    `way` is how S is to be ordered: "import", "export" of an import without a stream,
    "unordered" import, or "wait" of streams.
    """
    client = client_of(library)
    with client.stream(gpu.p):
        array = client.full(OLD)
        # The library loads its kernel now: later that would wait for the gate.
        client.write(array, OLD)
        dlx.from_dlpack(array, stream=gpu.s)
        gpu.synchronize()
        with gpu.gate.closed(gpu.p):
            client.write(array, NEW)
            if way == "import":
                tensor = dlx.from_dlpack(array, stream=gpu.s)
            elif way == "export":
                tensor = dlx.from_dlpack(array)
                tensor.__dlpack__(stream=gpu.s.handle)
            else:
                tensor = dlx.from_dlpack(array, stream=-1)
            if way == "wait":
                dlx.Stream(gpu.s).wait(gpu.p)
            read = gpu.read(tensor.data_ptr, gpu.s)
            waits = not gpu.s.settles()
            gpu.gate.open()
            gpu.s.synchronize()
    return one_value(read), waits


@pytest.mark.parametrize("way", ["import", "export"])
@pytest.mark.parametrize("library", PRODUCERS)
def test_a_stream_waits_for_what_the_producer_was_given(
    gpu: Machine, library: str, way: str
) -> None:
    """R80, R83, R150: a read on another stream sees a write that was queued late."""
    assert read_of_late_write(gpu, library, way) == (NEW, True)


@pytest.mark.parametrize("library", [*PRODUCERS, "cuda.core"])
def test_without_order_the_old_elements_are_read(gpu: Machine, library: str) -> None:
    """R76: the control; `stream=-1` waits for nothing."""
    assert read_of_late_write(gpu, library, "unordered") == (OLD, False)


@pytest.mark.parametrize("library", [*PRODUCERS, "cuda.core"])
def test_a_stream_waits_for_a_stream_that_is_named(gpu: Machine, library: str) -> None:
    """R76: `stream=-1`, and the order made by `dlx.Stream.wait`."""
    assert read_of_late_write(gpu, library, "wait") == (NEW, True)


def test_cuda_core_orders_nothing(gpu: Machine) -> None:
    """R79: its `__dlpack__` takes a stream and ignores it, which dlx cannot see."""
    assert read_of_late_write(gpu, "cuda.core", "import") == (OLD, False)


def late_tensor(gpu: Machine) -> dlx.Tensor:
    """Return a tensor that P has yet to write."""
    address = gpu.memory[1]
    gpu.fill(address, NEW, gpu.p)
    return dlx.from_pointer(
        address, (COUNT,), "float32", device="cuda:0", stream=dlx.Stream(gpu.p)
    )


def make_old(gpu: Machine) -> None:
    """Write what `late_tensor` overwrites."""
    gpu.fill(gpu.memory[1], OLD, gpu.p)
    gpu.synchronize()


@pytest.mark.parametrize("library", CONSUMERS)
def test_the_stream_of_a_consumer_waits(gpu: Machine, library: str) -> None:
    """R73, R80: the consumer's current stream, or the one that its user names."""
    client = client_of(library)
    make_old(gpu)
    with client.stream(gpu.s):
        client.take(late_tensor(gpu))
        make_old(gpu)
        with gpu.gate.closed(gpu.p):
            taken = client.take(late_tensor(gpu))
            read = gpu.read(gpu.memory[1], gpu.s)
            waits = not gpu.s.settles()
            gpu.gate.open()
            gpu.s.synchronize()
        del taken
    assert (one_value(read), waits) == (NEW, True)


def test_numba_waits_on_the_host_for_the_stream_of_the_interface(
    gpu: Machine,
) -> None:
    """R149: `as_cuda_array` synchronizes the stream that dlx names."""
    client = client_of("numba")
    make_old(gpu)
    with gpu.gate.closed(gpu.p), gpu.gate.opened_after(0.1):
        array = client.take(late_tensor(gpu))
        read = gpu.read(array.device_ctypes_pointer.value, gpu.s)
        gpu.s.synchronize()
    assert one_value(read) == NEW


def jax_on_gpu() -> Any:
    """Return JAX, or skip the test if it has no GPU."""
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    return jax


def test_jax_waits_for_the_tensor_that_it_takes(gpu: Machine) -> None:
    """R73, R80: JAX names a stream of its own, which no user sees."""
    jax = jax_on_gpu()
    make_old(gpu)
    add = jax.jit(lambda x: x + 0.0)
    add(jax.dlpack.from_dlpack(late_tensor(gpu))).block_until_ready()
    make_old(gpu)
    with gpu.gate.closed(gpu.p), gpu.gate.opened_after(0.2):
        result = add(jax.dlpack.from_dlpack(late_tensor(gpu)))
        value = one_value(np.asarray(result).tolist())
    assert value == NEW


def test_a_stream_waits_for_what_jax_computes(gpu: Machine) -> None:
    """R80: JAX returns before its kernels have run; the read comes after them."""
    jax = jax_on_gpu()
    numpy = jax.numpy

    def long(x: Any) -> Any:
        unit = numpy.eye(2048, dtype=numpy.float32)
        return jax.lax.fori_loop(0, 300, lambda _, y: y @ unit, x)

    compute = jax.jit(long)
    start = numpy.full((2048, 2048), NEW, numpy.float32)
    compute(start).block_until_ready()
    result = compute(start)
    at_work = not result.is_ready()
    tensor = dlx.from_dlpack(result, stream=gpu.s)
    read = gpu.read(tensor.data_ptr, gpu.s)
    gpu.s.synchronize()
    assert at_work, "the computation was too short to show anything"
    assert one_value(read) == NEW


def test_jax_can_be_asked_for_no_order(gpu: Machine) -> None:
    """R76: -1 is not a handle; used as one, it would end the process."""
    jax_on_gpu()
    code, _, errors = run_python(
        """
        import dlx, jax
        x = jax.numpy.ones(8).block_until_ready()
        assert dlx.from_dlpack(x, stream=-1).stream is None
        """
    )
    found(f"jax.Array.__dlpack__(stream=-1): exit code {code}")
    assert code == 0, errors


STREAMS = ["dlx", "own", "torch", "cupy", "numba", "cuda.core", "cuda.bindings"]


@pytest.mark.parametrize("library", STREAMS)
def test_a_stream_is_named_by_the_objects_of_all_libraries(
    gpu: Machine, library: str
) -> None:
    """R154: the handle is that of the stream, however it is given."""
    handle = gpu.s.handle
    if library == "dlx":
        stream: Any = dlx.Stream(handle)
    elif library == "own":
        stream = gpu.s
    elif library == "torch":
        torch = client_of("torch").library
        stream = torch.cuda.ExternalStream(handle, device=0)
    elif library == "cupy":
        stream = client_of("cupy").library.cuda.Stream.from_external(gpu.s)
    elif library == "numba":
        stream = client_of("numba").library.external_stream(handle)
    elif library == "cuda.core":
        stream = client_of("cuda.core").library.Device(0).create_stream(gpu.s)
    else:
        stream = pytest.importorskip("cuda.bindings.driver").CUstream(handle)
    tensor = dlx.from_pointer(
        gpu.memory[0], (COUNT,), "float32", device="cuda:0", stream=stream
    )
    assert tensor.stream == handle


def test_the_default_streams_of_the_libraries_are_the_legacy_one(gpu: Machine) -> None:
    """R84: each answers 0 for it, which DLPack writes as 1."""
    torch, cupy, numba = (
        client_of(library).library for library in ("torch", "cupy", "numba")
    )
    streams = [
        torch.cuda.default_stream(),
        cupy.cuda.Stream.null,
        numba.default_stream(),
    ]
    assert [dlx.Stream(stream).handle for stream in streams] == [1, 1, 1]
