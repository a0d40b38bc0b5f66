"""Tests share the simulated machine, which dlx itself does not see here.

Those on which dlx uses it are in `streams`, and run in a process of their own.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from support.simulated_driver import Simulation, simulation

# A GPU of the machine is for tests/gpu alone: the others make up streams and memory on
# devices, which a driver would follow, and look at JAX's arrays on the CPU.
os.environ["DLX_LIBCUDA"] = "/nowhere/libcuda.so.1"
os.environ["DLX_LIBAMDHIP"] = "/nowhere/libamdhip64.so"
os.environ["JAX_PLATFORMS"] = "cpu"

# No test asserts on time: a machine that does something else, too, is slow.
settings.register_profile(
    "untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


@pytest.fixture
def sim() -> Simulation:
    """Give the simulated machine: device 0 is current, and nothing has happened."""
    machine = simulation()
    machine.start()
    return machine


@pytest.fixture(autouse=True)
def no_collection(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the garbage of other tests close no descriptor while a test counts them."""
    if not request.module.__name__.startswith("test_sharing"):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Let no collection look at the tests themselves: many tests collect."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line for each reason what was skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2] for report in skipped)
    for reason, count in reasons.most_common():
        text = reason.removeprefix("Skipped: ")
        terminalreporter.write_line(f"{count} tests skipped: {text}")
