"""The simulated driver stands for CUDA and HIP in all tests."""

from __future__ import annotations

import os

import pytest
from simulated_driver import Simulation, simulation


@pytest.fixture(scope="session", autouse=True)
def _driver_of_dlx() -> None:
    """Name the simulated driver before dlx looks for a real one."""
    path = str(simulation().path)
    os.environ |= {"DLX_LIBCUDA": path, "DLX_LIBAMDHIP": path}


@pytest.fixture
def sim() -> Simulation:
    """Give the simulated machine: device 0 is current, and nothing has happened."""
    machine = simulation()
    machine.start()
    return machine
