"""The drivers are real; none of the tests here needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.real import Driver


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Driver:
    """Give the driver that the test names, or skip it."""
    return Driver(request.param)


@pytest.fixture(scope="session", autouse=True)
def _no_new_devices() -> Iterator[None]:
    """Leave no `/dev/nvidiactl` behind: for root, NVIDIA's library makes it."""
    file = Path("/dev/nvidiactl")
    there = file.exists()
    yield
    if not there:
        file.unlink(missing_ok=True)
