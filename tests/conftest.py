"""Tests share the simulated machine, which dlx itself does not see here.

Those on which dlx uses it are in `streams`, and run in a process of their own.
"""

from __future__ import annotations

import pytest
from simulated_driver import Simulation, simulation


@pytest.fixture
def sim() -> Simulation:
    """Give the simulated machine: device 0 is current, and nothing has happened."""
    machine = simulation()
    machine.start()
    return machine
