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
from support.simulated_kernels import settle
from support.simulated_objects import Stream

os.environ["DLX_LIBCUDA"] = os.environ["DLX_LIBAMDHIP"] = str(library_path())


@pytest.fixture(scope="session")
def machine() -> Simulation:
    """Give the machine, whose drivers dlx has loaded: whatever test comes first."""
    machine = simulation()
    machine.start()
    for hip in (False, True):
        dlx.from_dlpack(framework(TableArray, hip=hip).full((1,)))
    settle(machine)
    return machine


@pytest.fixture
def sim(machine: Simulation) -> Iterator[Simulation]:
    """Give a machine on which nothing has happened; no rule of drivers is broken."""
    machine.start()
    yield machine
    # What waits for streams of the test goes back while these are there.
    gc.collect()
    machine.set_error(0)
    settle(machine)
    assert machine.violations == []


@pytest.fixture
def library(sim: Simulation) -> CudaFramework:
    """Give a library whose arrays have an exchange table."""
    return framework(TableArray)


@pytest.fixture
def p(sim: Simulation) -> Stream:
    """Give the stream that the producer works on."""
    return sim.stream()


@pytest.fixture
def s(sim: Simulation) -> Stream:
    """Give the stream of the consumer."""
    return sim.stream()


@pytest.fixture
def array(library: CudaFramework, p: Stream) -> Iterator[TableArray]:
    """Give four elements that `p` fills, on which their library works in this test."""
    with library.stream(p):
        yield library.full((4,))


@pytest.fixture
def running(sim: Simulation, library: CudaFramework) -> None:
    """Have the driver loaded and an event in the pool, as in a program that runs."""
    with library.stream(sim.stream()):
        dlx.from_dlpack(library.full((1,))).__dlpack__(stream=sim.stream().handle)
