"""Copies between host and GPU, against torch's own."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest

from gpu.machine import COUNT, NEW, OLD, Machine, one_value

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "compact": lambda x: x,
    "transposed": lambda x: x.T,
    "every other row": lambda x: x[::2],
    "every other column": lambda x: x[:, ::2],
    "a window": lambda x: x[3:17, 5:23],
    "a window, transposed": lambda x: x[3:17, 5:23].T,
    "one column": lambda x: x[:, 7],
    "one element": lambda x: x[4:5, 9:10],
    "nothing": lambda x: x[4:4],
}
DTYPES = ["uint8", "int16", "float32", "complex128"]


def numbers(dtype: str) -> Any:
    """Return a matrix of numbers that (nearly) all differ."""
    return np.arange(40 * 50).reshape(40, 50).astype(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layout_of_the_device_comes_to_the_host(
    gpu: Machine, torch: ModuleType, layout: str, dtype: str
) -> None:
    """R54, R57: like torch's `.cpu()`."""
    x = LAYOUTS[layout](torch.from_numpy(numbers(dtype)).cuda())
    copied = dlx.from_dlpack(x, device="cpu")
    assert copied.device == "cpu"
    assert copied.is_copied
    np.testing.assert_array_equal(copied.numpy(), x.cpu().numpy())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layout_of_the_host_comes_to_the_device(
    gpu: Machine, torch: ModuleType, layout: str, dtype: str
) -> None:
    """R57: like torch's `.cuda()`."""
    x = LAYOUTS[layout](numbers(dtype))
    copied = dlx.from_dlpack(x, device="cuda:0", stream=gpu.s)
    gpu.s.synchronize()
    assert copied.device == "cuda:0"
    assert copied.is_copied
    np.testing.assert_array_equal(torch.from_dlpack(copied).cpu().numpy(), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_made_compact_on_the_device(
    gpu: Machine, torch: ModuleType, layout: str
) -> None:
    """R59: `copy=True` shares nothing; a copy that dlx makes itself is row-major."""
    x = LAYOUTS[layout](torch.from_numpy(numbers("float32")).cuda())
    copied = dlx.from_dlpack(dlx.from_dlpack(x), copy=True)
    assert copied.is_copied
    assert copied.is_contiguous
    taken = torch.from_dlpack(copied)
    assert torch.equal(taken, x)
    x.fill_(-1)
    if x.numel():
        assert not torch.equal(taken, x)


def test_a_copy_to_the_host_comes_after_the_work(
    gpu: Machine, torch: ModuleType
) -> None:
    """R55: when the call returns, it contains what the producer's stream had queued."""
    external = torch.cuda.ExternalStream(gpu.p.handle, device=0)
    with torch.cuda.stream(external):
        x = torch.full((COUNT,), OLD, device="cuda:0")
        dlx.from_dlpack(x, device="cpu")
        gpu.synchronize()
        with gpu.gate.closed(gpu.p), gpu.gate.opened_after(0.1):
            x.fill_(NEW)
            copied = dlx.from_dlpack(x, device="cpu")
            assert one_value(copied.numpy().tolist()) == NEW


def test_a_copy_to_the_device_is_on_the_stream_that_was_named(
    gpu: Machine, torch: ModuleType
) -> None:
    """R50: it runs after earlier work of that stream, and waits for nothing else."""
    source = np.full(COUNT, NEW, np.float32)
    dlx.from_dlpack(source, device="cuda:0", stream=gpu.s)
    with gpu.gate.closed(gpu.p):
        copied = dlx.from_dlpack(source, device="cuda:0", stream=gpu.s)
        read = gpu.read(copied.data_ptr, gpu.s)
        assert gpu.s.settles(1.0), "the copy waits for a stream that it does not need"
    assert one_value(read) == NEW


def test_the_source_of_a_copy_may_change_at_once(gpu: Machine) -> None:
    """R59: pageable memory has been read when the call returns."""
    source = np.full(1 << 20, OLD, np.float32)
    with gpu.gate.closed(gpu.s), gpu.gate.opened_after(0.05):
        copied = dlx.from_dlpack(source, device="cuda:0", stream=gpu.s)
        source[:] = NEW
        gpu.s.synchronize()
    assert (dlx.from_dlpack(copied, device="cpu").numpy() == OLD).all()


def test_no_copy_is_made_that_was_not_allowed(gpu: Machine, torch: ModuleType) -> None:
    """R48, R58: `copy=False` to and from the GPU raises CopyRefused."""
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(torch.zeros(3, device="cuda:0"), device="cpu", copy=False)
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(np.zeros(3), device="cuda:0", copy=False)


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (), (1 << 20,)])
def test_empty_memory_of_the_device_can_be_used(
    gpu: Machine, torch: ModuleType, shape: tuple[int, ...]
) -> None:
    """`dlx.empty` on CUDA gives memory that torch writes and reads."""
    made = dlx.empty(shape, "float32", device="cuda:0")
    assert made.device == "cuda:0"
    assert made.shape == shape
    taken = torch.from_dlpack(made)
    taken.fill_(NEW)
    assert torch.equal(taken, torch.full(shape, NEW, device="cuda:0"))


def test_memory_of_the_device_is_given_back(gpu: Machine, torch: ModuleType) -> None:
    """Thousands of tensors, many times the memory of the device, leak nothing."""
    free, total = torch.cuda.mem_get_info()
    nbytes = total // 20
    for _ in range(100):
        made = dlx.empty((nbytes,), "uint8", device="cuda:0")
        del made
    gpu.synchronize()
    assert torch.cuda.mem_get_info()[0] > free - 4 * nbytes
