"""Drivers: old ones, none at all, forks, errors, and HIP in place of CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path
from textwrap import dedent

import dlx
import pytest
from support.cuda_producers import Framework
from support.python_process import run_python
from support.simulated_driver import Simulation, library_in, library_path
from support.simulated_kernels import read

TESTS = Path(__file__).parent.parent


def run_with(driver: str | None, code: str) -> str:
    """Output of a Python of its own, whose driver is this file; None for the usual."""
    paths = filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    for variable in ("DLX_LIBCUDA", "DLX_LIBAMDHIP"):
        env.pop(variable, None)
        if driver is not None:
            env[variable] = driver
    command = [sys.executable, "-W", "error", "-c", dedent(code)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.strip()


SIMULATED = """
    import os
    import dlx
    from support.cuda_producers import TableArray, framework
    from support.simulated_driver import simulation
    sim = simulation()
    sim.start()
    library = framework(TableArray)
    """


def with_simulation(code: str) -> str:
    """Output of a Python of its own on a new simulated machine."""
    return run_with(str(library_path()), dedent(SIMULATED) + dedent(code))


# No driver.

NO_DRIVER = "/nowhere/libcuda.so.1"


def test_without_a_driver_all_goes_on_on_the_cpu() -> None:
    """R70: import, export, copy, borrow and use."""
    code = """
        import dlx, numpy as np
        array = np.arange(3)
        tensor = dlx.from_dlpack(array)
        with dlx.borrow(array, out=np.zeros(3)) as (a, b, stream):
            assert stream is None
        with tensor.use() as view:
            view.numpy()
        tensor.synchronize()
        print(np.from_dlpack(tensor.to(copy=True)).sum(), tensor.stream)
        """
    assert run_with(NO_DRIVER, code) == "3 None"


@pytest.mark.parametrize(
    "call",
    [
        "dlx.from_dlpack(array, stream=0x1000)",
        "dlx.borrow(array, stream=0x1000).__enter__()",
        "dlx.from_dlpack(array, stream=1).use(stream=0x1000).__enter__()",
        "dlx.from_dlpack(array, stream=1).__dlpack__(stream=0x1000)",
        "dlx.from_dlpack(array, stream=1).synchronize()",
        "dlx.Stream(0x1000)",
    ],
)
def test_without_a_driver_what_needs_one_is_one_clear_error(call: str) -> None:
    """R60, R80: with the file that was looked for."""
    code = f"""
        import dlx
        from support.fake_producers import Producer
        from support.fake_table import without_protocol
        array = without_protocol()(device=(2, 0))
        try:
            {call}
        except (BufferError, dlx.CudaError) as error:
            print(error)
        """
    assert "driver" in run_with(NO_DRIVER, code)


def test_no_driver_is_touched_at_import_or_on_the_cpu() -> None:
    """H5: a process that forks later must not have initialized one."""
    code = """
        import numpy as np
        dlx.borrow(np.zeros(3)).__enter__()
        dlx.from_dlpack(np.zeros(3)).synchronize()
        print(sim.called())
        """
    assert with_simulation(code) == "[]"


# Old drivers.


def test_a_driver_without_a_function_says_which() -> None:
    """S19: and what is accepted; what needs no function goes on."""
    code = """
        import dlx
        from support.fake_table import without_protocol
        array = without_protocol()(device=(2, 0))
        dlx.from_dlpack(array, stream=-1)
        try:
            dlx.from_dlpack(array, stream=1).__dlpack__(stream=0x1000)
        except dlx.CudaError as error:
            print(error)
        """
    not_a_driver = find_library("m")
    assert not_a_driver is not None
    printed = run_with(not_a_driver, code)
    assert printed.startswith("the driver has no cuInit; expected CUDA 11.3 or later")


# Forks.


def test_a_driver_whose_file_is_gone_is_found_by_its_name(tmp_path: Path) -> None:
    """H4: an update of the driver's package replaces the file under the process."""
    [path] = library_in(tmp_path, "libcuda.so.1")
    code = """
        import ctypes, os
        ctypes.CDLL("libcuda.so.1")
        os.remove(os.environ["REMOVED"])
        import dlx
        tensor = dlx.empty(4, "float32", device="cuda:0")
        assert tensor.device == "cuda:0"
        """
    named = {"LD_LIBRARY_PATH": str(tmp_path), "REMOVED": str(path), "DLX_LIBCUDA": ""}
    assert run_python(code, **named) == (0, "", "")


def test_a_fork_after_the_driver_was_used_is_one_clear_error() -> None:
    """H5: the child says so, and the CPU goes on there."""
    code = """
        import numpy as np
        with library.stream(sim.stream()):
            array = library.full((4,))
            s = sim.stream()
            tensor = dlx.from_dlpack(array, stream=s)
            pid = os.fork()
            if pid == 0:
                try:
                    tensor.__dlpack__(stream=s.handle + 64)
                except (dlx.CudaError, BufferError) as error:
                    print(error, flush=True)
                assert dlx.from_dlpack(np.arange(3)).to(copy=True).size == 3
                del tensor
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            tensor.__dlpack__(stream=sim.stream().handle)
        """
    printed = with_simulation(code)
    assert "fork" in printed
    assert "'spawn'" in printed


# Errors.


def test_an_error_has_call_number_and_name(sim: Simulation, library: Framework) -> None:
    """R60: what the driver answers becomes a CudaError."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        sim.fail_next("cuEventRecord", 700)
        with pytest.raises(
            dlx.CudaError, match="cuEventRecord failed with 700"
        ) as info:
            dlx.from_dlpack(array, stream=s)
        error = info.value
        assert (error.call, error.code) == ("cuEventRecord", 700)
        assert error.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
        assert array.deleted == len(array.exports)


@pytest.mark.parametrize(
    "call",
    ["cuCtxGetCurrent", "cuStreamIsCapturing", "cuEventRecord", "cuStreamWaitEvent"],
)
def test_an_import_that_fails_leaves_nothing(
    sim: Simulation, library: Framework, call: str
) -> None:
    """R8: the deleter has run, the context is what it was, and the next one works."""
    with library.stream(sim.stream(device=1)):
        array, s = library.full((4,), device=1), sim.stream(device=1)
        sim.fail_next(call, 999)
        with pytest.raises(dlx.CudaError, match=call):
            dlx.from_dlpack(array, stream=s)
        assert array.deleted == len(array.exports)
        assert sim.get("cuCtxGetCurrent") == sim.context(0)
        read(s, dlx.from_dlpack(array, stream=s))
    assert sim.races == []
