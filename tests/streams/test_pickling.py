"""Pickles of tensors on a device, and what `dlx.pickling.device` does with them."""

from __future__ import annotations

import pickle
from typing import Any

import dlx
import dlx.pickling
import numpy as np
import pytest
from support.device_arrays import on_device
from support.simulated_driver import Simulation
from support.simulated_kernels import write

ARRAY = np.arange(12, dtype="float32").reshape(3, 4)


def test_a_device_is_refused_by_default(sim: Simulation) -> None:
    """dlx-share/README.md, Pickling: nothing is copied to the host unnoticed."""
    t = on_device(sim, ARRAY)
    sim.clear_journal()
    with pytest.raises(BufferError, match="cuda:0"):
        pickle.dumps(t)
    assert sim.called() == []


@pytest.mark.parametrize("array", [ARRAY, ARRAY.T, ARRAY[::2, 1:], ARRAY[:0]])
@pytest.mark.parametrize("protocol", [4, 5])
def test_on_request_the_elements_arrive_on_the_cpu(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, array: Any, protocol: int
) -> None:
    """dlx-share/README.md, Pickling: `dlx.pickling.device = "cpu"`."""
    monkeypatch.setattr(dlx.pickling, "device", "cpu")
    back = pickle.loads(pickle.dumps(on_device(sim, array), protocol))
    assert back.device == "cpu"
    assert back.tolist() == array.tolist()


def test_the_elements_are_those_of_the_work_before(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dlx-share/README.md, Pickling: complete when `pickle.dumps` returns."""
    monkeypatch.setattr(dlx.pickling, "device", "cpu")
    s = sim.stream()
    t = on_device(sim, ARRAY, stream=s)
    write(s, t)
    text = pickle.dumps(t)
    assert sim.races == []
    assert pickle.loads(text).shape == (3, 4)


def test_managed_memory_arrives_on_the_cpu_without_a_setting(sim: Simulation) -> None:
    """dlx-share/README.md, Pickling: the host reads it, once its streams are done."""
    memory, s = sim.allocate(16, kind="managed"), sim.stream()
    t = dlx.from_pointer(
        memory.address, (4,), "float32", device="cuda_managed:0", stream=s
    )
    write(s, t)
    back = pickle.loads(pickle.dumps(t))
    assert sim.races == []
    assert (back.device, back.shape) == ("cpu", (4,))
