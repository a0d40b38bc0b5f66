"""`c_launch.c`: streams around a launch of C, by `dlpack_exchange_streams.h`."""

from __future__ import annotations

import ctypes
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cuda_producers import Framework, TableArray, framework
from support.extensions import extension
from support.optional_libraries import requires
from support.simulated_driver import Simulation


@pytest.fixture
def copy(sim: Simulation) -> Any:
    """Give the function; the driver's are found in the simulated one."""
    ctypes.CDLL(str(sim.path), ctypes.RTLD_GLOBAL)
    requires("torch")  # brings triton, which has cuda.h
    triton = Path(str(import_module("triton").__file__))
    headers = triton.parent / "backends/nvidia/include"
    return extension("c_launch", "-isystem", str(headers)).copy


@pytest.mark.parametrize("where", ["of the library", "of the caller"])
def test_two_libraries_and_a_launch_are_in_order(
    sim: Simulation, copy: Any, where: str
) -> None:
    """R80, R143, R150: whatever stream each of them works on, before and after."""
    one, other = framework(TableArray, "one"), framework(TableArray, "other")
    p, q, s = sim.stream(), sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        x, out = one.full((4,)), other.full((4,))
        copy(x, out, None if where == "of the library" else s.handle)
        x += 1
        out += 1
    assert sim.races == []


def test_what_does_not_fit_is_not_launched(copy: Any, library: Framework) -> None:
    """And is given back."""
    x, out = library.full((4,)), library.full((3,))
    with pytest.raises(ValueError, match="x and out differ in size"):
        copy(x, out)
    with pytest.raises(BufferError, match=r"^x: it is on cpu, expected is cuda$"):
        copy(np.zeros(3, "f4"), out)
