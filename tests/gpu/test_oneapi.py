"""Memory of CUDA that a producer calls oneAPI's, as SYCL does where it runs on CUDA.

DLPack has one number for all memory of SYCL. Asked for `(2, 0)`, the producer names it
as CUDA's, and makes the stream wait for its queue, which is P here; no SYCL is needed.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import dlx
import pytest

from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.released import settle

ONEAPI, CUDA = (14, 0), (2, 0)


class OnCuda:
    """An array of SYCL that has no attributes of dpctl's."""

    def __init__(self, gpu: Machine) -> None:
        """Take memory of the machine, which P writes."""
        self.gpu = gpu
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        """OneAPI's."""
        return ONEAPI

    def __dlpack__(self, *, stream: Any = None, **keywords: Any) -> Any:
        """Export as CUDA's; what comes on the stream comes after what P has to do."""
        self.asked.append({"stream": stream, **keywords})
        if keywords.get("dl_device") != CUDA:
            raise BufferError("the test asks for CUDA")
        if stream != -1:
            self.gpu.driver.order(1 if stream is None else stream, self.gpu.p.handle)
        exported = dlx.from_pointer(
            self.gpu.memory[1], (COUNT,), "float32", device="cuda:0", owner=self
        )
        return exported.__dlpack__(stream=-1, max_version=(1, 3))


Way = Callable[[Machine, OnCuda], dlx.Tensor]


def by_import(gpu: Machine, array: OnCuda) -> dlx.Tensor:
    """Import as CUDA's, for S."""
    return dlx.from_dlpack(array, device="cuda:0", stream=gpu.s)


def by_export(gpu: Machine, array: OnCuda) -> dlx.Tensor:
    """Import as CUDA's without a stream, and export for S."""
    tensor = dlx.from_dlpack(array, device="cuda:0")
    tensor.__dlpack__(stream=gpu.s.handle)
    return tensor


def by_neither(gpu: Machine, array: OnCuda) -> dlx.Tensor:
    """Import as CUDA's without order."""
    return dlx.from_dlpack(array, device="cuda:0", stream=-1)


def read_of_late_write(gpu: Machine, way: Way) -> tuple[float, bool]:
    """Read on S what P has yet to write; return the value, and if S waits."""
    array = OnCuda(gpu)
    gpu.fill(gpu.memory[1], OLD, gpu.p)
    gpu.synchronize()
    with gpu.gate.closed(gpu.p):
        gpu.fill(gpu.memory[1], NEW, gpu.p)
        tensor = way(gpu, array)
        read = gpu.read(tensor.data_ptr, gpu.s)
        waits = not gpu.s.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    assert tensor.device == "cuda:0"
    assert tensor.data_ptr == gpu.memory[1]
    assert [asked["dl_device"] for asked in array.asked] == [CUDA]
    return one_value(read), waits


@pytest.mark.parametrize("way", [by_import, by_export])
def test_a_stream_waits_for_the_queue(gpu: Machine, way: Way) -> None:
    """R80, R83, R85: the producer is told a stream of CUDA's, and memory is shared."""
    assert read_of_late_write(gpu, way) == (NEW, True)


def test_without_order_no_stream_waits_for_the_queue(gpu: Machine) -> None:
    """R76: the control; the producer is told -1."""
    assert read_of_late_write(gpu, by_neither) == (OLD, False)


@pytest.mark.parametrize("release", ["auto", "none"])
def test_the_array_is_held_until_the_stream_is_done(gpu: Machine, release: Any) -> None:
    """H4: nothing can make a queue wait; with "none", the control, it is let go."""
    array = OnCuda(gpu)
    gone = weakref.ref(array)
    with gpu.gate.closed(gpu.s):
        tensor = dlx.from_dlpack(array, device="cuda:0", stream=gpu.s, release=release)
        gpu.read(tensor.data_ptr, gpu.s)
        del array, tensor
        gc.collect()
        is_held = gone() is not None
        assert not gpu.s.is_done()
    settle(gpu)
    assert is_held == (release == "auto")
    assert gone() is None
