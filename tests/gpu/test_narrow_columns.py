"""Columns of many rows and crops, copied by dlx itself.

The source is a dlx tensor, so no other library is asked to copy. A plan of one call
for each row would take as many calls as a matrix has rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest

from gpu.machine import Machine
from gpu.report import found

Crop = Callable[[Any], Any]

CROPS: dict[str, tuple[str, tuple[int, ...], Crop]] = {
    "1 byte, close rows": ("uint8", (1 << 20, 64), lambda x: x[:, 7]),
    "1 byte, far rows": ("uint8", (1 << 15, 4096), lambda x: x[:, 7]),
    "2 bytes, close rows": ("uint8", (1 << 20, 64), lambda x: x[:, 7:9]),
    "4 bytes, close rows": ("float32", (1 << 18, 64), lambda x: x[:, 7]),
    "4 bytes, far rows": ("float32", (1 << 14, 2048), lambda x: x[:, 7]),
    "64 bytes, close rows": ("float32", (1 << 18, 64), lambda x: x[:, 8:24]),
    "every other column": ("float32", (1 << 14, 256), lambda x: x[:, ::2]),
    "columns, transposed": ("float32", (1 << 18, 64), lambda x: x[:, 7:9].T),
    "3-D crop": ("float32", (64, 256, 256), lambda x: x[3:-3, 5:250, 7:9]),
    "3-D crop, wide": ("float32", (64, 256, 256), lambda x: x[3:-3, 5:250, 8:72]),
    "3-D crop, 1 byte": ("uint8", (128, 256, 256), lambda x: x[1:-1, 1:-1, 128]),
    "3-D crop, outer": ("float32", (64, 256, 256), lambda x: x[:, 5:6, :]),
    "3-D crop, permuted": (
        "float32",
        (64, 128, 256),
        lambda x: x[3:-3, 5:100, 7:9].permute(2, 0, 1),
    ),
}

CALLS = 2
"""Copies of the driver: one, or one to the host and one back."""


def crop_of(torch: ModuleType, name: str) -> Any:
    """Return a crop, of numbers that tell rows and columns apart."""
    dtype, shape, crop = CROPS[name]
    size = int(np.prod(shape))
    whole = torch.arange(size, device="cuda:0", dtype=torch.int64) * 2654435761 >> 7
    return crop((whole % 251).to(getattr(torch, dtype)).reshape(shape))


def timed(call: Callable[[], Any], torch: ModuleType) -> tuple[Any, float]:
    """Return the result of a second call, and its milliseconds."""
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return result, (time.perf_counter() - begin) * 1e3


@pytest.mark.parametrize("name", CROPS)
def test_a_crop_comes_to_the_host(gpu: Machine, torch: ModuleType, name: str) -> None:
    """R54, R55, R57: with the elements of torch's `.cpu()`."""
    x = crop_of(torch, name)
    tensor = dlx.from_dlpack(x)
    copied, own = timed(lambda: tensor.to(device="cpu"), torch)
    expected, theirs = timed(x.cpu, torch)
    found(f"to the host, {name}: dlx {own:.2f} ms, torch {theirs:.2f} ms")
    assert copied.device == "cpu"
    assert copied.is_contiguous
    np.testing.assert_array_equal(copied.numpy(), expected.numpy())


@pytest.mark.parametrize("name", CROPS)
def test_a_crop_is_copied_on_the_device(
    gpu: Machine, torch: ModuleType, name: str
) -> None:
    """R47, R59: compact, with the elements of torch's `.contiguous()`."""
    x = crop_of(torch, name)
    tensor = dlx.from_dlpack(x)
    copied, own = timed(lambda: tensor.to(copy=True), torch)
    expected, theirs = timed(
        lambda: x.clone(memory_format=torch.contiguous_format), torch
    )
    found(f"on the device, {name}: dlx {own:.2f} ms, torch {theirs:.2f} ms")
    assert copied.device == "cuda:0"
    assert copied.is_contiguous
    assert copied.data_ptr != x.data_ptr()
    assert torch.equal(torch.from_dlpack(copied), expected)


def copies_of(torch: ModuleType, call: Callable[[], Any], folder: Path) -> list[str]:
    """Return what the GPU copied in a call, as the profiler of torch saw it."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    trace = folder / "trace.json"
    profile.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == "gpu_memcpy"]


@pytest.fixture(scope="module")
def sees_copies(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether the profiler sees the copies of this machine: one of torch's own."""
    torch = pytest.importorskip("torch")
    ones = torch.ones(8, device="cuda:0")
    return bool(copies_of(torch, ones.cpu, tmp_path_factory.mktemp("trace")))


@pytest.mark.parametrize("way", ["host", "device"])
@pytest.mark.parametrize("name", CROPS)
def test_a_crop_takes_few_calls_of_the_driver(
    gpu: Machine,
    torch: ModuleType,
    sees_copies: bool,
    tmp_path: Path,
    name: str,
    way: str,
) -> None:
    """R47, R55: one call, or by way of the host; never one for each row."""
    if not sees_copies:
        pytest.skip("the profiler of torch sees no copies on this machine")
    tensor = dlx.from_dlpack(crop_of(torch, name))
    torch.cuda.synchronize()

    def copy() -> None:
        tensor.to(device="cpu") if way == "host" else tensor.to(copy=True)

    copies = copies_of(torch, copy, tmp_path)
    found(f"copies to the {way}, {name}: {copies[:4]} of {len(copies)}")
    assert 1 <= len(copies) <= CALLS
