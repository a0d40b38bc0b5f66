"""Tests of dlx on the simulated driver: they run in a process of their own.

dlx looks for a driver once, so that everything here sees the simulated one, and the
tests in the folder above see none.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import dlx
import pytest
from support.cuda_producers import Framework as CudaFramework
from support.cuda_producers import TableArray, framework
from support.simulated_driver import Simulation, library_path, simulation

os.environ["DLX_LIBCUDA"] = os.environ["DLX_LIBAMDHIP"] = str(library_path())


@pytest.fixture
def sim() -> Iterator[Simulation]:
    """Give a machine on which nothing has happened; no rule of drivers is broken."""
    machine = simulation()
    machine.start()
    yield machine
    # What waits for streams of the test goes back while these are there.
    gc.collect()
    machine.set_error(0)
    machine.advance()
    dlx.empty(1, "int8", device="cuda:0")
    assert machine.violations == []


@pytest.fixture
def library(sim: Simulation) -> CudaFramework:
    """Give a library whose arrays have an exchange table."""
    return framework(TableArray)
