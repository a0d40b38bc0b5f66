"""Arrays of Numba name no stream while they work on its default stream."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import dlx
import pytest
from support.fake_cuda_interface import Shown
from support.simulated_driver import Simulation
from support.simulated_objects import LEGACY, PER_THREAD

DeviceNDArray = type(
    "DeviceNDArray", (Shown,), {"__module__": "numba.cuda.cudadrv.devicearray"}
)
"""Numba says `int(self.stream) if self.stream != 0 else None` of its own arrays."""


class Subclass(DeviceNDArray):  # type: ignore[misc, valid-type]
    """A user's array."""


@pytest.fixture(params=[False, True], ids=["legacy", "per thread"])
def default(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Give the default stream that Numba is configured to use."""
    config = SimpleNamespace(CUDA_PER_THREAD_DEFAULT_STREAM=int(request.param))
    monkeypatch.setitem(sys.modules, "numba.core.config", config)
    return PER_THREAD if request.param else LEGACY


@pytest.mark.parametrize("named", [None, 0], ids=["None", "0"])
@pytest.mark.parametrize("kind", [DeviceNDArray, Subclass])
def test_an_import_waits_for_the_default_stream(
    sim: Simulation, default: int, kind: Any, named: int | None
) -> None:
    """H1: in both directions, as if the stream were named."""
    memory, s, p = sim.allocate(24), sim.stream(), sim.default_stream(default)
    p.write(memory)
    tensor = dlx.from_dlpack(kind(memory, stream=named), stream=s)
    s.write(memory)
    del tensor
    p.read(memory)
    assert sim.races == []


def test_a_borrow_joins_the_default_stream(sim: Simulation, default: int) -> None:
    """H1: at both ends."""
    memory, s, p = sim.allocate(24), sim.stream(), sim.default_stream(default)
    p.write(memory)
    with dlx.borrow(DeviceNDArray(memory), stream=s):
        s.write(memory)
    p.read(memory)
    assert sim.races == []


def test_an_array_of_another_library_has_nothing_to_wait_for(sim: Simulation) -> None:
    """R148: None means that there is no work."""
    memory, s = sim.allocate(24), sim.stream()
    sim.default_stream(LEGACY).write(memory)
    tensor = dlx.from_dlpack(Shown(memory), stream=s)
    s.read(memory)
    assert tensor.stream == s.handle
    assert len(sim.races) == 1


def test_a_stream_that_numba_names_is_taken(sim: Simulation) -> None:
    """R149: its arrays may be of any stream."""
    memory, p = sim.allocate(24), sim.stream()
    assert dlx.from_dlpack(DeviceNDArray(memory, p), stream=p).stream == p.handle
    assert "cuStreamWaitEvent" not in sim.called()
