"""Each call of the driver fails once, in what only orders streams.

`test_copies_failing.py` does so with copies.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.cuda_producers import DLPackArray, InterfaceArray, TableArray, framework
from support.device_arrays import on_device
from support.simulated_driver import Simulation
from support.simulated_kernels import read
from support.simulated_objects import DriverError

Way = Callable[[Simulation], Callable[[], Any]]


def imported(kind: Any) -> Way:
    """Import a library's array on another stream, use it, and let go."""

    def prepare(sim: Simulation) -> Callable[[], Any]:
        library, p, s = framework(kind), sim.stream(), sim.stream()
        with library.stream(p):
            array = library.full((4,))

        def run() -> None:
            with library.stream(p):
                read(s, dlx.from_dlpack(array, stream=s))

        return run

    return prepare


def exported(sim: Simulation) -> Callable[[], Any]:
    """Export on another stream."""
    tensor = on_device(sim, np.arange(4.0), stream=sim.stream())
    s = sim.stream()
    return lambda: tensor.__dlpack__(stream=s.handle, max_version=(1, 3))


def lent(sim: Simulation) -> Callable[[], Any]:
    """Lend to another stream."""
    tensor = on_device(sim, np.arange(4.0), stream=sim.stream())
    s = sim.stream()

    def run() -> None:
        with dlx.borrow(tensor, stream=s):
            pass

    return run


def launched(sim: Simulation) -> Callable[[], Any]:
    """Launch on another stream."""
    tensor = on_device(sim, np.arange(4.0), stream=sim.stream())
    s = sim.stream()

    @dlx.launcher(stream=lambda: s)
    def launch(address: int) -> None:
        """Do nothing."""

    return lambda: launch(tensor)


def made(sim: Simulation) -> Callable[[], Any]:
    """Allocate, and free."""
    return lambda: dlx.empty(4, "float64", device="cuda:0")


WAYS: dict[str, Way] = {
    "by table": imported(TableArray),
    "by protocol": imported(DLPackArray),
    "by interface": imported(InterfaceArray),
    "export": exported,
    "borrow": lent,
    "launcher": launched,
    "empty": made,
}


def failure(run: Callable[[], Any]) -> str | None:
    """Return the call that failed, by what dlx or the library reports."""
    try:
        run()
    except dlx.CudaError as error:
        return (error.call or "").removesuffix("_v2")
    except DriverError as error:  # The library's own call.
        return error.name.removesuffix("_v2")
    return None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_failing_call_is_reported_and_loses_nothing(
    sim: Simulation, way: Way
) -> None:
    """R21: whichever of dlx's calls it is; the same works afterwards."""
    run = way(sim)

    def quiet() -> dict[str, int]:
        gc.collect(1)
        for _ in range(4):
            sim.advance()
            dlx.empty(1, "int8", device="cuda:0")
        sim.advance()
        return {
            name: sim.counts[name] for name in ("allocations", "captures", "contexts")
        }

    run()
    quiet()
    sim.clear_journal()
    run()
    calls, before = sim.called(), quiet()
    assert calls
    reported = []
    for index, name in enumerate(calls):
        sim.fail_next(name, 999, after=calls[:index].count(name))
        failed = failure(run)
        assert failed in (None, name.removesuffix("_v2")), (index, failed)
        reported += [failed] if failed else []
        sim.set_error(0)
        assert quiet() == before, (index, name)
        run()
    assert reported
    assert sim.violations == []
    assert sim.races == []
