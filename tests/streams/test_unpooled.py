"""Memory of dlx's own on a device that has no pools: 801 from `cuMemAllocAsync`."""

from __future__ import annotations

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.simulated_driver import Simulation
from support.simulated_kernels import until

NOT_SUPPORTED = 801
MANY = 1000


@pytest.fixture(params=["cuda", "rocm"])
def device(sim: Simulation, request: pytest.FixtureRequest) -> str:
    """Give a device without pools, as some of a virtual machine or a Jetson are."""
    sim.fail_next("cuMemAllocAsync", NOT_SUPPORTED, MANY)
    sim.fail_next("hipMallocAsync", NOT_SUPPORTED, MANY)
    return f"{request.param}:0"


def test_memory_is_had_without_a_pool(sim: Simulation, device: str) -> None:
    """R93: and freed once its stream is done with it."""
    before = sim.counts["allocations"]
    s = sim.stream(hip=device == "rocm:0")
    with dlx.stream(s, device=device):
        tensor = dlx.empty(4, "float32", device=device)
    s.launch(True, tensor.data_ptr, 16)
    assert sim.counts["allocations"] == before + 1
    del tensor
    assert sim.counts["allocations"] == before + 1
    s.advance()
    until(lambda: sim.counts["allocations"] == before)
    assert sim.races == []


def test_copies_are_made_without_a_pool(sim: Simulation, device: str) -> None:
    """R60: to the device and back."""
    array = np.arange(6, dtype="float32").reshape(2, 3)
    there = dlx.from_dlpack(array, device=device)
    back = dlx.from_dlpack(there, device="cpu")
    assert (np.from_dlpack(back) == array).all()
    assert sim.races == []


def test_memory_let_go_in_a_capture_is_freed_after_it(
    sim: Simulation, device: str
) -> None:
    """H6: no event can be recorded before."""
    before = sim.counts["allocations"]
    s = sim.stream(hip=device == "rocm:0")
    with dlx.stream(s, device=device):
        held = [dlx.empty(4, "float32", device=device)]
        with s.capture():
            held.clear()
        assert sim.counts["allocations"] == before + 1
        in_thread(lambda: dlx.empty(1, "int8", device=device))
        sim.advance()
        dlx.empty(1, "int8", device=device)
    sim.advance()
    until(lambda: sim.counts["allocations"] == before)


def test_too_much_memory_is_a_memory_error(sim: Simulation, device: str) -> None:
    """R93: whichever function says so."""
    sim.fail_next("cuMemAlloc_v2", 2)
    sim.fail_next("hipMalloc", 2)
    with pytest.raises(MemoryError):
        dlx.empty(4, "float32", device=device)
