"""Runs the folder on the first CUDA GPU, and skips it without one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from gpu.driver import DriverError
from gpu.machine import Machine, machine
from gpu.report import FOUND, found

HERE = Path(__file__).parent
# The conftest.py of the checkout hides the GPU.
for name in ("DLX_LIBCUDA", "DLX_LIBAMDHIP", "JAX_PLATFORMS"):
    os.environ.pop(name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of the frameworks here, whose versions are the machine's."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session", autouse=True)
def _driver_of_dlx() -> None:
    """Skip without a GPU."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        driver = machine().driver
    except (OSError, DriverError) as error:
        reason = f"no CUDA GPU, nothing is known about it: {error}"
        if os.environ.get("DLX_REQUIRE_GPU") == "1":
            pytest.exit(reason, returncode=1)
        found(reason)
        pytest.skip(reason)
    found(f"{driver.device_name()}, driver for CUDA {driver.version()}")


@pytest.fixture
def gpu(_driver_of_dlx: None) -> Iterator[Machine]:
    """Return the machine, with nothing running on it before and after."""
    found_machine = machine()
    found_machine.driver.call("cuCtxSetCurrent", found_machine.context)
    found_machine.synchronize()
    yield found_machine
    found_machine.synchronize()


@pytest.fixture
def torch(gpu: Machine) -> ModuleType:
    """Return torch, or skip the test."""
    pytest.importorskip("torch")
    return import_module("torch")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> None:
    """Print what was measured, and whether all claims held."""
    if not FOUND:
        return
    terminalreporter.section("GPU")
    for line in FOUND:
        terminalreporter.write_line(line)
    count = {
        outcome: len(terminalreporter.stats.get(outcome, []))
        for outcome in ("passed", "failed", "error", "skipped")
    }
    bad = count["failed"] + count["error"]
    if not (bad or count["passed"]):
        terminalreporter.write_line("verdict: NOT RUN")
        return
    verdict = f"{bad} FAILED" if bad else "ALL HELD"
    terminalreporter.write_line(
        f"verdict: {verdict}, {count['passed']} passed, "
        f"{count['skipped']} skipped for want of a library"
    )
