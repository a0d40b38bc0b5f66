"""Programs that reset the primary context, or work beside it in another one."""

from __future__ import annotations

from ctypes import addressof
from typing import Any

import dlx
import pytest

from gpu.clients import Torch
from gpu.green import WAYS, Green, GreenStream, use_kernels
from gpu.machine import COUNT, NEW, OLD, Machine, Stream, machine, one_value
from gpu.numba_streams import LEGACY, DefaultStream
from gpu.released import settle

SETTLED_S = 0.5
"""Seconds in which a stream is done that nothing blocks; contexts take turns."""


def late_write(gpu: Machine, *, is_ordered: bool = True) -> tuple[float, bool]:
    """Read on S what P has yet to write; return the value, and if S waits."""
    address = gpu.memory[1]
    gpu.fill(address, OLD, gpu.p)
    gpu.synchronize()
    with gpu.gate.closed(gpu.p):
        gpu.fill(address, NEW, gpu.p)
        tensor = dlx.from_pointer(
            address, (COUNT,), "float32", device="cuda:0", stream=dlx.Stream(gpu.p)
        )
        kept = dlx.from_dlpack(tensor, stream=gpu.s if is_ordered else -1)
        read = gpu.read(address, gpu.s)
        waits = not gpu.s.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    del kept, tensor
    settle(gpu)
    return one_value(read), waits


def attempt(gpu: Machine) -> Any:
    """Return what was read, or how dlx refuses."""
    try:
        return late_write(gpu)
    except (BufferError, dlx.CudaError) as error:
        return repr(error)


def reset() -> dict[str, Any]:
    """Order streams, reset the device as `cudaDeviceReset` does, and order others."""
    gpu = machine()
    before = attempt(gpu)
    gpu.driver.call("cuDevicePrimaryCtxReset_v2", 0)
    machine.cache_clear()
    again = machine()
    return {
        "before": before,
        "after": [attempt(again) for _ in range(3)],
        "unordered": late_write(again, is_ordered=False),
    }


class Created(Green):
    """A context as PyCUDA makes one, with a stream; it is not current outside."""

    def __init__(self, gpu: Machine) -> None:
        """Make it."""
        self.driver = gpu.driver
        self.context = gpu.driver.get("cuCtxCreate_v2", 0, 0)
        handle = gpu.driver.new_stream()
        gpu.driver.get("cuCtxPopCurrent_v2")
        self.streams = {WAYS[1]: [GreenStream(self, handle)]}
        self.handles = {handle}


def _waits(stream: Stream) -> bool:
    return not stream.settles(SETTLED_S)


def _to(gpu: Machine, torch: Torch, there: Stream, stream: Any) -> bool:
    """Whether a stream of the context waits for what torch has queued."""
    array = torch.full(OLD)
    torch.write(array, OLD)
    gpu.synchronize()
    with gpu.gate.closed(DefaultStream(gpu, LEGACY)):
        torch.write(array, NEW)
        tensor = dlx.from_dlpack(array, stream=stream)
        waits = _waits(there)
        gpu.gate.open()
    there.synchronize()
    del tensor
    settle(gpu)
    return waits


def _back(gpu: Machine, torch: Torch, there: Stream, stream: Any) -> bool:
    """Whether torch waits for what a block has queued on a stream of the context."""
    array = torch.full(OLD)
    torch.write(array, OLD)
    gpu.synchronize()
    with gpu.gate.closed(there):
        with dlx.borrow(array, stream=stream):
            pass
        torch.write(array, NEW)
        waits = _waits(DefaultStream(gpu, LEGACY))
        gpu.gate.open()
    settle(gpu)
    return waits


def created() -> dict[str, bool]:
    """Order torch on its default stream with a stream of another context."""
    gpu, torch = machine(), Torch()
    other = Created(gpu)
    (there,) = other.streams[WAYS[1]]
    # Memory of the primary context is none of the other one, but this is everybody's.
    pinned = addressof(gpu.read(gpu.memory[0], gpu.s))
    gpu.synchronize()
    with pytest.MonkeyPatch.context() as patch:
        use_kernels(gpu, other, patch)
        gpu.fill(pinned, OLD, there)
        there.synchronize()
        with gpu.gate.closed(there):
            gpu.fill(pinned, NEW, there)
        return {
            "to": _to(gpu, torch, there, there),
            "to, unordered": _to(gpu, torch, there, -1),
            "back": _back(gpu, torch, there, there),
            "back, unordered": _back(gpu, torch, there, -1),
        }
