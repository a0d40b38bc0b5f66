"""JAX arrays on CUDA, in both directions.

JAX launches on streams of its own, which no user sees. So a gate on P, which its input
waits for, is what makes its computations late. Where JAX may wait on the host, another
thread opens the gate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import dlx
import numpy as np
import pytest

from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.report import found

OPENED_S = 0.2
"""Seconds until the gate is opened, for calls that may wait."""
ROUNDS = 20


@pytest.fixture
def jax(gpu: Machine) -> Any:
    """Return JAX, or skip the test if it is not there, or not for CUDA."""
    library = pytest.importorskip("jax")
    if library.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    return library


class Interface:
    """An object with nothing but the `__cuda_array_interface__` of another."""

    def __init__(self, x: Any) -> None:
        """Keep the other object."""
        self._x = x

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return its interface."""
        interface: dict[str, Any] = self._x.__cuda_array_interface__
        return interface


@cache
def add_one() -> Callable[[Any], Any]:
    """Return a computation of JAX, which compiles it once."""
    library = pytest.importorskip("jax")
    compiled: Callable[[Any], Any] = library.jit(lambda x: x + 1.0)
    return compiled


def on_p(gpu: Machine) -> dlx.Tensor:
    """Return a tensor that is ready on P, whatever is queued there."""
    return dlx.from_pointer(
        gpu.memory[1], (COUNT,), "float32", device="cuda:0", stream=dlx.Stream(gpu.p)
    )


def read_of_late_result(
    gpu: Machine, jax: Any, take: Callable[[Any], int]
) -> tuple[float, bool]:
    """Read on S what JAX computes of a late input; return the value, and if S waits.

    `take` returns the address of a result, for S. The input is NEW once the gate is
    open, and OLD before; the memory of the result has that of OLD.
    """
    gpu.fill(gpu.memory[1], OLD, gpu.p)
    gpu.synchronize()
    early = [add_one()(jax.dlpack.from_dlpack(on_p(gpu))) for _ in range(8)]
    for result in early:
        take(result.block_until_ready())
    gpu.synchronize()
    del early, result
    with gpu.gate.closed(gpu.p), gpu.gate.opened_after(OPENED_S):
        gpu.fill(gpu.memory[1], NEW, gpu.p)
        result = add_one()(jax.dlpack.from_dlpack(on_p(gpu)))
        read = gpu.read(take(result), gpu.s)
        waits = not gpu.s.settles()
        gpu.s.synchronize()
    return one_value(read), waits


# From JAX.


def test_an_import_shares_the_memory_of_jax(gpu: Machine, jax: Any) -> None:
    """R64, R80: address, device and elements."""
    x = jax.numpy.arange(12.0).reshape(3, 4)
    tensor = dlx.from_dlpack(x, stream=gpu.s)
    found(f"a tensor of JAX: readonly={tensor.readonly}, stream={tensor.stream}")
    assert tensor.device == "cuda:0"
    assert tensor.data_ptr == x.unsafe_buffer_pointer()
    assert tensor.shape == (3, 4)
    np.testing.assert_array_equal(tensor.to(device="cpu").numpy(), np.asarray(x))


def test_a_stream_waits_for_a_jitted_computation(gpu: Machine, jax: Any) -> None:
    """R80: a read on S comes after a computation that waits for P."""
    kept: list[dlx.Tensor] = []

    def take(result: Any) -> int:
        kept[:] = [dlx.from_dlpack(result, stream=gpu.s)]
        return kept[0].data_ptr

    value, waits = read_of_late_result(gpu, jax, take)
    found(f"dlx.from_dlpack(jax, stream=S): the host returns before: {waits}")
    assert value == NEW + 1


def test_an_import_without_a_stream_is_ordered_at_its_use(
    gpu: Machine, jax: Any
) -> None:
    """R72, R80: JAX has ordered the legacy stream, and S waits for that."""

    def take(result: Any) -> int:
        with dlx.from_dlpack(result).use(stream=gpu.s) as view:
            return view.data_ptr

    value, waits = read_of_late_result(gpu, jax, take)
    found(f"dlx.from_dlpack(jax).use(stream=S): the host returns before: {waits}")
    assert value == NEW + 1


def test_a_block_waits_for_a_jitted_computation(gpu: Machine, jax: Any) -> None:
    """R80: at the entry of `borrow`."""

    def take(result: Any) -> int:
        with dlx.borrow(result, stream=gpu.s) as (view, _):
            address: int = view.data_ptr
            return address

    value, waits = read_of_late_result(gpu, jax, take)
    found(f"dlx.borrow(jax, stream=S): the host returns before: {waits}")
    assert value == NEW + 1


def test_the_method_of_jax_orders_the_stream_that_it_is_given(
    gpu: Machine, jax: Any
) -> None:
    """R73, R80: `__dlpack__(stream=)`, which dlx relies on."""
    kept: list[dlx.Tensor] = []

    def take(result: Any) -> int:
        capsule = result.__dlpack__(stream=gpu.s.handle)
        kept[:] = [dlx.from_dlpack(capsule)]
        return kept[0].data_ptr

    value, waits = read_of_late_result(gpu, jax, take)
    found(f"jax.Array.__dlpack__(stream=S): the host returns before: {waits}")
    assert value == NEW + 1


@pytest.mark.parametrize("stream", [None, 1, 2])
def test_the_method_of_jax_takes_the_default_streams(
    gpu: Machine, jax: Any, stream: int | None
) -> None:
    """R72, R73: dlx passes each of them on."""
    x = jax.numpy.arange(12.0)
    tensor = dlx.from_dlpack(x.__dlpack__(stream=stream))
    gpu.synchronize()
    np.testing.assert_array_equal(tensor.to(device="cpu").numpy(), np.arange(12.0))


def test_a_copy_to_the_host_comes_after_a_jitted_computation(
    gpu: Machine, jax: Any
) -> None:
    """R55: through dlx, from an import without a stream."""
    copies: list[float] = []

    def take(result: Any) -> int:
        tensor = dlx.from_dlpack(result)
        copies.append(one_value(tensor.to(device="cpu").numpy().tolist()))
        return tensor.data_ptr

    read_of_late_result(gpu, jax, take)
    assert copies[-1] == NEW + 1


def test_the_interface_of_jax_waits_on_the_host(gpu: Machine, jax: Any) -> None:
    """R148: it names no stream, so the elements must be ready when it is read."""
    kept: list[dlx.Tensor] = []

    def take(result: Any) -> int:
        interface = result.__cuda_array_interface__
        assert interface.get("stream") is None
        kept[:] = [dlx.from_dlpack(Interface(result), stream=gpu.s)]
        assert kept[0].device == "cuda:0"
        return kept[0].data_ptr

    value, waits = read_of_late_result(gpu, jax, take)
    found(f"jax.Array.__cuda_array_interface__: the host returns before: {waits}")
    assert value == NEW + 1


def struck(gpu: Machine, jax: Any, release: Any) -> int:
    """Return in how many rounds JAX reuses what S has yet to read."""
    fill = jax.jit(lambda x: jax.numpy.full((COUNT,), x))
    old, new = (jax.device_put(np.float32(value)) for value in (OLD, NEW))
    strikes = 0
    for _ in range(ROUNDS):
        fill(new).block_until_ready()
        x = fill(old).block_until_ready()
        with gpu.gate.closed(gpu.s):
            tensor = dlx.from_dlpack(x, stream=gpu.s.handle, release=release)
            read = gpu.read(tensor.data_ptr, gpu.s)
            del x, tensor
            again = [fill(new).block_until_ready() for _ in range(64)]
            gpu.gate.open()
            gpu.s.synchronize()
        del again
        strikes += one_value(read) != OLD
    found(f"free jax {release}: strikes in {strikes} of {ROUNDS}")
    return strikes


def test_what_a_kernel_has_yet_to_read_is_not_handed_out(
    gpu: Machine, jax: Any
) -> None:
    """H4: the array is dropped, and JAX makes others, while a kernel waits to read."""
    assert struck(gpu, jax, "auto") == 0


def test_without_order_it_is_handed_out(gpu: Machine, jax: Any) -> None:
    """H4: the control."""
    assert struck(gpu, jax, "none") > 0


# To JAX.


def test_jax_shares_the_memory_of_dlx(gpu: Machine, jax: Any) -> None:
    """R64: what JAX imports is where dlx says."""
    gpu.fill(gpu.memory[1], NEW, gpu.p)
    array = jax.dlpack.from_dlpack(on_p(gpu))
    assert array.unsafe_buffer_pointer() == gpu.memory[1]
    np.testing.assert_array_equal(np.asarray(array), np.full(COUNT, NEW))


def test_convert_gives_an_array_of_jax(gpu: Machine, jax: Any) -> None:
    """R80: from a tensor that is ready on P, and back to one of dlx."""
    gpu.fill(gpu.memory[1], OLD, gpu.p)
    gpu.synchronize()
    add_one()(dlx.convert(on_p(gpu), jax.Array)).block_until_ready()
    with gpu.gate.closed(gpu.p), gpu.gate.opened_after(OPENED_S):
        gpu.fill(gpu.memory[1], NEW, gpu.p)
        array = add_one()(dlx.convert(on_p(gpu), jax.Array))
        tensor = dlx.convert(array, dlx.Tensor)
        copied = tensor.to(device="cpu")
    np.testing.assert_array_equal(copied.numpy(), np.full(COUNT, NEW + 1))


def test_jax_refuses_an_interface_that_names_a_stream(gpu: Machine, jax: Any) -> None:
    """R149: JAX takes its own streams alone; its `from_dlpack` takes all."""
    gpu.fill(gpu.memory[1], NEW, gpu.p)
    gpu.synchronize()
    with pytest.raises(Exception, match="Only GPU streams used for dlpack imports"):
        jax.numpy.asarray(Interface(on_p(gpu)))
    taken = jax.dlpack.from_dlpack(on_p(gpu))
    assert one_value(np.asarray(taken).tolist()) == NEW
