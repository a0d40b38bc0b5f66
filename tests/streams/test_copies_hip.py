"""Copies by HIP: the same as by CUDA, with its own calls."""

from __future__ import annotations

import dlx
import numpy as np
import pytest
from support.device_arrays import values
from support.simulated_driver import Simulation

GRID = np.arange(80, dtype="float32").reshape(2, 40)


def test_a_tensor_goes_to_a_rocm_device_and_back(sim: Simulation) -> None:
    """R55, R57, R75: and strided on it."""
    s = sim.stream(hip=True)
    whole = dlx.from_dlpack(GRID, device="rocm:0", stream=s)
    assert whole.device == "rocm:0"
    assert whole.stream == s.handle
    part = dlx.from_pointer(
        whole.data_ptr,
        (2, 20),
        "float32",
        device="rocm:0",
        strides=(40, 1),
        owner=whole,
        stream=s,
    )
    sim.clear_journal()
    copied = dlx.from_dlpack(part, copy=True, stream=s)
    called = [name for name in sim.called() if "Memcpy" in name or "Malloc" in name]
    assert called == ["hipMemcpyAsync", "hipMallocAsync", "hipMemcpyAsync"]
    np.testing.assert_array_equal(values(sim, copied), GRID[:, :20])
    np.testing.assert_array_equal(values(sim, whole), GRID)
    assert sim.races == []


def test_a_tensor_goes_to_another_rocm_device(sim: Simulation) -> None:
    """R50, R57: by a call that names both, since neither need reach the other."""
    tensor = dlx.from_dlpack(GRID, device="rocm:0")
    sim.clear_journal()
    moved = tensor.to(device="rocm:1")
    assert [name for name in sim.called() if "Memcpy" in name] == ["hipMemcpyPeerAsync"]
    np.testing.assert_array_equal(values(sim, moved), GRID)
    assert sim.races == []


def test_memory_of_a_rocm_device_is_given_back(sim: Simulation) -> None:
    """R8: by `hipFreeAsync`, when the tensor dies."""
    before = sim.counts["allocations"]
    tensor = dlx.empty(3, "float32", device="rocm:0")
    assert sim.counts["allocations"] == before + 1
    del tensor
    assert "hipFreeAsync" in sim.called()
    assert sim.counts["allocations"] == before


def test_nothing_goes_from_cuda_to_rocm(sim: Simulation) -> None:
    """R57: no driver knows both."""
    tensor = dlx.from_dlpack(GRID, device="cuda:0")
    with pytest.raises(BufferError, match="cuda:0, and dlx does not move it to rocm:0"):
        tensor.to(device="rocm:0")
