"""Copies when the driver fails, is not there, or is gone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.cuda_producers import TableArray, framework
from support.device_arrays import on_device
from support.python_process import run_python
from support.simulated_driver import Simulation

ARRAY = np.arange(12, dtype="float32").reshape(3, 4)


def up(sim: Simulation) -> Callable[[], Any]:
    """Copy to the device."""
    s = sim.stream()
    return lambda: dlx.from_dlpack(ARRAY[:, ::-1], device="cuda:0", stream=s)


def down(sim: Simulation) -> Callable[[], Any]:
    """Copy to the host, after another stream."""
    source = on_device(sim, ARRAY[:, 1], stream=sim.stream())
    return lambda: source.to(device="cpu")


def across(sim: Simulation) -> Callable[[], Any]:
    """Copy on the device, from a library on another stream."""
    library, p, s = framework(TableArray), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((3, 4))

    def copy() -> Any:
        with library.stream(p):
            return dlx.from_dlpack(array, copy=True, stream=s)

    return copy


def layered(sim: Simulation) -> Callable[[], Any]:
    """Copy on the device, in several calls."""
    source = on_device(sim, ARRAY[:, ::2], stream=sim.stream())
    s = sim.stream()
    return lambda: dlx.from_dlpack(source, copy=True, stream=s)


def failure(copy: Callable[[], Any]) -> dlx.CudaError | None:
    """What a call of the driver reports, if that is passed on."""
    try:
        copy()
    except dlx.CudaError as error:
        return error
    return None


@pytest.mark.parametrize("kind", [up, down, across, layered])
def test_a_failing_call_is_reported_and_loses_nothing(
    sim: Simulation, kind: Callable[[Simulation], Callable[[], Any]]
) -> None:
    """R21: whichever of its calls it is."""
    copy = kind(sim)
    copy()
    sim.clear_journal()
    copy()
    calls = sim.called()
    failed = set()
    for index, name in enumerate(calls):
        after = calls[:index].count(name)
        gc.collect()
        sim.advance()
        dlx.empty(1, "int8", device="cuda:0")
        allocations = sim.counts["allocations"]
        sim.fail_next(name, 999, after=after)
        if error := failure(copy):
            failed.add(name)
            assert (error.call or "").removesuffix("_v2") == name.removesuffix("_v2")
            assert (error.code, error.name) == (999, "CUDA_ERROR_UNKNOWN")
        sim.set_error(0)
        gc.collect()
        sim.advance()
        dlx.empty(1, "int8", device="cuda:0")
        assert sim.counts["allocations"] == allocations, name
    expected = {"cuMemAllocAsync", "cuStreamIsCapturing"} if kind is not down else set()
    assert failed >= expected
    assert sim.violations == []


# Without a driver that works.


def in_process(code: str, **environment: str) -> None:
    """Run code in a process of its own."""
    status, _, errors = run_python(code, **environment)
    assert (status, errors) == (0, "")


def test_without_a_driver_there_is_one_clear_error() -> None:
    """R62: and copies on the host work."""
    in_process(
        """
        import dlx, numpy as np
        for make in (
            lambda: dlx.empty(3, "float32", device="cuda:0"),
            lambda: dlx.from_dlpack(np.arange(3), device="cuda:0"),
            lambda: dlx.from_dlpack(np.arange(3)).to(device="rocm:0"),
            lambda: dlx.from_pointer(8, (3,), "int8", device="cuda:0").to(copy=True),
        ):
            try:
                make()
            except BufferError as error:
                assert "nowhere.so could not be loaded" in str(error), error
            else:
                raise AssertionError
        dlx.from_dlpack(np.arange(3), device="cpu", copy=True)
        """,
        DLX_LIBCUDA="nowhere.so",
        DLX_LIBAMDHIP="nowhere.so",
    )


def test_memory_that_a_fork_inherits_is_leaked_quietly() -> None:
    in_process(
        """
        import os, dlx, numpy as np
        from support.simulated_driver import simulation
        simulation().start()
        tensor = dlx.from_dlpack(np.arange(3), device="cuda:0")
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
        else:
            del tensor
            try:
                dlx.from_dlpack(np.arange(3), device="cuda:0")
            except RuntimeError as error:
                os._exit("fork" not in str(error))
            os._exit(2)
        """
    )


def test_memory_that_is_left_at_exit_does_no_harm() -> None:
    """R14: the driver may be gone by then."""
    in_process(
        """
        import dlx, numpy as np
        from support.simulated_driver import simulation
        sim = simulation()
        sim.start()
        kept = [dlx.from_dlpack(np.arange(3), device="cuda:0") for _ in range(3)]
        kept.append(dlx.from_dlpack(kept[0], copy=True, stream=sim.stream()))
        sim.set_error(4)
        """
    )
