"""Pinned memory of torch and CuPy.

It has no stream, but the device reads and writes it, and a stream may do so late (H11).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import delete, take

from gpu.clients import client_of
from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.report import found

CUDA_HOST = 3
OPENED_S = 0.2
"""Seconds until the gate is opened, for calls that wait."""


def of_torch() -> tuple[Any, int]:
    """Return pinned memory, and its address."""
    torch = client_of("torch").library
    x = torch.full((COUNT,), OLD).pin_memory()
    assert x.is_pinned()
    return x, x.data_ptr()


def of_cupy() -> tuple[Any, int]:
    """Return pinned memory as a NumPy array, and its address."""
    client_of("cupy")
    array = import_module("cupyx").empty_pinned((COUNT,), "float32")
    array[:] = OLD
    return array, array.ctypes.data


MEMORY: dict[str, Callable[[], tuple[Any, int]]] = {"torch": of_torch, "cupy": of_cupy}


def pinned(library: str) -> tuple[dlx.Tensor, Any]:
    """Return a tensor that says it is pinned, and its elements for NumPy."""
    owner, address = MEMORY[library]()
    tensor = dlx.from_pointer(
        address, (COUNT,), "float32", device="cuda_host:0", owner=owner
    )
    return tensor, np.asarray(owner)


def test_the_device_of_pinned_memory_is_what_torch_exports(gpu: Machine) -> None:
    """R64: dlx reads it from the exported tensor, and torch has two answers."""
    x, address = of_torch()
    managed = take(x.__dlpack__(max_version=(1, 3)))
    exported = managed.dl_tensor.device
    of_export = (exported.device_type, exported.device_id)
    delete(managed)
    of_method = tuple(map(int, x.__dlpack_device__()))
    tensor = dlx.from_dlpack(x)
    found(
        f"pinned memory of torch: __dlpack_device__ {of_method}, its export "
        f"{of_export}, in dlx {tensor.device}"
    )
    assert of_method == (CUDA_HOST, 0)
    assert tensor.data_ptr == address
    assert (int(tensor.device.type), tensor.device.id) == of_export


@pytest.mark.parametrize("library", MEMORY)
def test_pinned_memory_is_host_memory_of_numpy(gpu: Machine, library: str) -> None:
    """R66: it is shared with NumPy by any of its names."""
    owner, address = MEMORY[library]()
    for tensor in (dlx.from_dlpack(owner), pinned(library)[0]):
        np.testing.assert_array_equal(tensor.numpy(), np.full(COUNT, OLD))
    assert dlx.from_dlpack(owner).data_ptr == address


@pytest.mark.parametrize("library", MEMORY)
def test_the_device_of_pinned_memory_is_kept(gpu: Machine, library: str) -> None:
    """R64: `from_pointer` says kDLCUDAHost, and an export does, too."""
    tensor, _ = pinned(library)
    assert tensor.device == "cuda_host:0"
    assert tuple(map(int, tensor.__dlpack_device__())) == (CUDA_HOST, 0)


@pytest.mark.parametrize("library", MEMORY)
def test_the_host_waits_for_the_stream_that_is_named(
    gpu: Machine, library: str
) -> None:
    """H11: a kernel on S that writes pinned memory has ended when the host looks."""
    tensor, elements = pinned(library)
    gpu.fill(gpu.memory[0], NEW, gpu.s)
    gpu.synchronize()
    with gpu.gate.closed(gpu.s), gpu.gate.opened_after(OPENED_S):
        gpu.copy(tensor.data_ptr, gpu.memory[0], gpu.s)
        tensor.synchronize(stream=-1)
        before = one_value(elements.tolist())
        tensor.synchronize(stream=gpu.s)
        after = one_value(elements.tolist())
    assert (before, after) == (OLD, NEW)


@pytest.mark.parametrize("library", MEMORY)
def test_the_host_does_not_wait_for_another_stream(gpu: Machine, library: str) -> None:
    """H11: only the stream that is named."""
    tensor, elements = pinned(library)
    gpu.fill(gpu.memory[0], NEW, gpu.s)
    gpu.synchronize()
    with gpu.gate.closed(gpu.p):
        gpu.copy(tensor.data_ptr, gpu.memory[0], gpu.s)
        tensor.synchronize(stream=gpu.s)
        assert not gpu.p.is_done()
        assert one_value(elements.tolist()) == NEW


def test_without_a_stream_pinned_memory_is_not_waited_for_in_silence(
    gpu: Machine,
) -> None:
    """H11: dlx cannot know who writes it."""
    tensor, _ = pinned("torch")
    with pytest.raises(BufferError, match=r"pass synchronize\(stream=\)"):
        tensor.synchronize()


def test_the_stream_of_a_copy_of_torch_can_be_named(gpu: Machine) -> None:
    """H11: `copy_(non_blocking=True)` to pinned memory returns before it has run."""
    torch = client_of("torch").library
    tensor, elements = pinned("torch")
    external = torch.cuda.ExternalStream(gpu.s.handle, device=0)
    with torch.cuda.stream(external):
        x = torch.full((COUNT,), NEW, device="cuda:0")
        there = torch.from_numpy(elements)
        assert there.is_pinned()
        there.copy_(x, non_blocking=True)
        torch.cuda.synchronize()
        there.fill_(OLD)
        with gpu.gate.closed(gpu.s), gpu.gate.opened_after(OPENED_S):
            there.copy_(x, non_blocking=True)
            before = one_value(elements.tolist())
            tensor.synchronize(stream=external)
            after = one_value(elements.tolist())
    assert (before, after) == (OLD, NEW)


@pytest.mark.parametrize("how", ["cuda_host", "as exported"])
@pytest.mark.parametrize("library", MEMORY)
def test_the_source_of_a_copy_may_change_at_once(
    gpu: Machine, library: str, how: str
) -> None:
    """R59: the device reads pinned memory late, so dlx waits for the stream."""
    tensor, elements = pinned(library)
    if how == "as exported":
        tensor = dlx.from_dlpack(MEMORY[library]()[0])
        elements = tensor.numpy()
    with dlx.stream(gpu.s):
        tensor.to(device="cuda:0")
        with gpu.gate.closed(gpu.s), gpu.gate.opened_after(OPENED_S):
            begin = time.perf_counter()
            copied = tensor.to(device="cuda:0")
            seconds = time.perf_counter() - begin
            elements[:] = NEW
        read = gpu.read(copied.data_ptr, gpu.s)
        gpu.s.synchronize()
    assert copied.stream == gpu.s.handle
    assert seconds > OPENED_S / 2, "the copy is queued on S, which was blocked"
    assert one_value(read) == OLD


@pytest.mark.parametrize("library", MEMORY)
def test_a_copy_waits_for_no_other_stream(gpu: Machine, library: str) -> None:
    """R50: P is blocked, and the copy on S is complete."""
    tensor, _ = pinned(library)
    with dlx.stream(gpu.s):
        tensor.to(device="cuda:0")
        with gpu.gate.closed(gpu.p):
            copied = tensor.to(device="cuda:0")
            read = gpu.read(copied.data_ptr, gpu.s)
            assert gpu.s.settles(1.0), "the copy waits for a stream that it has not"
            assert not gpu.p.is_done()
    assert one_value(read) == OLD


def test_pinned_memory_of_a_copy_is_its_own(gpu: Machine) -> None:
    """R47: a copy of pinned memory to the host is complete, and shares nothing."""
    tensor, elements = pinned("torch")
    copied = tensor.to(device="cpu", copy=True)
    elements[:] = NEW
    assert copied.device == "cpu"
    assert one_value(copied.numpy().tolist()) == OLD


def test_a_copy_to_pinned_memory_is_refused(gpu: Machine) -> None:
    """R60: dlx does not allocate such memory; torch may be asked to copy into it."""
    torch = client_of("torch").library
    tensor = dlx.from_dlpack(torch.zeros(8, device="cuda:0"))
    with pytest.raises(BufferError, match="does not move it to cuda_host:0"):
        tensor.to(device="cuda_host:0")
