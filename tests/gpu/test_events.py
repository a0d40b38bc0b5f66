"""Events, and what costs nothing."""

from __future__ import annotations

import dlx
import pytest
from support.python_process import run_python

from gpu.clients import client_of
from gpu.machine import NEW, OLD, Machine, one_value


def test_an_event_is_free_again_when_a_stream_waits_for_it(gpu: Machine) -> None:
    """src/driver/event.rs: a wait covers what the event had recorded by then."""
    driver, event = gpu.driver, gpu.driver.new_event()
    gpu.fill(gpu.memory[0], OLD, gpu.p)
    gpu.p.synchronize()
    with gpu.gate.closed(gpu.p):
        gpu.fill(gpu.memory[0], NEW, gpu.p)
        driver.call("cuEventRecord", event, gpu.p.handle)
        driver.call("cuStreamWaitEvent", gpu.s.handle, event, 0)
        driver.call("cuEventRecord", event, gpu.x.handle)
        driver.call("cuStreamWaitEvent", gpu.y.handle, event, 0)
        read = gpu.read(gpu.memory[0], gpu.s)
        assert gpu.y.settles(), "Y waits for P, whose event was recorded anew"
        assert not gpu.s.settles(), "S does not wait for P any more"
        gpu.gate.open()
        gpu.s.synchronize()
    assert one_value(read) == NEW


def test_an_event_may_be_destroyed_when_a_stream_waits_for_it(gpu: Machine) -> None:
    """`cuEventDestroy` does not block, and the wait stands."""
    gpu.fill(gpu.memory[0], OLD, gpu.p)
    gpu.p.synchronize()
    with gpu.gate.closed(gpu.p):
        gpu.fill(gpu.memory[0], NEW, gpu.p)
        gpu.driver.order(gpu.s.handle, gpu.p.handle)
        read = gpu.read(gpu.memory[0], gpu.s)
        assert not gpu.s.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    assert one_value(read) == NEW


def test_a_thousand_imports_order_each_its_own(gpu: Machine) -> None:
    """src/driver/event.rs: one event of dlx's pool serves them all."""
    torch = client_of("torch")
    with torch.stream(gpu.p):
        array = torch.full(OLD)
        for turn in range(1000):
            gpu.synchronize()
            value = float(turn)
            with gpu.gate.closed(gpu.p):
                torch.write(array, value)
                tensor = dlx.from_dlpack(array, stream=gpu.s)
                dlx.from_dlpack(array, stream=gpu.y)
                read = gpu.read(tensor.data_ptr, gpu.s)
                gpu.gate.open()
                gpu.s.synchronize()
            assert one_value(read) == value


@pytest.mark.parametrize(
    "code",
    [
        "dlx.from_dlpack(x, stream=current)",
        "dlx.from_dlpack(x, stream=-1)",
        "dlx.borrow(x, y, out=z).__enter__()",
    ],
)
def test_the_way_on_one_stream_needs_no_driver(gpu: Machine, code: str) -> None:
    """R81: dlx finds no driver, because `DLX_LIBCUDA` names no library."""
    client_of("torch")
    ran, _, errors = run_python(
        f"""
        import os, torch
        os.environ["DLX_LIBCUDA"] = "/nowhere/libcuda.so"
        import dlx
        x, y, z = (torch.zeros(8, device="cuda:0") for _ in range(3))
        with torch.cuda.stream(torch.cuda.Stream()):
            current = torch.cuda.current_stream()
            {code}
        """
    )
    assert ran == 0, errors


def test_a_child_process_is_told_that_it_cannot(gpu: Machine) -> None:
    """A forked child has no CUDA; dlx raises instead of crashing."""
    code, out, errors = run_python(
        """
        import os
        import dlx
        dlx.Stream(1).synchronize()
        if os.fork() == 0:
            try:
                dlx.Stream(1).synchronize()
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert code == 0, errors
    assert "fork" in out
