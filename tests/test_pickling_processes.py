"""Tensors between processes, by the engines that exist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.optional_libraries import requires
from support.python_process import run_python

# In a process of its own: others of pytest have threads, with which none can fork.
BEGIN = """
from support.process_work import answer, check, tensors
"""
ENGINES = {
    "joblib": """
        import joblib
        run = joblib.delayed(answer)
        with joblib.parallel_config(backend="loky", n_jobs=2):
            for answered in joblib.Parallel()(run(tensors()) for _ in range(2)):
                check(answered)
        """,
    "loky": """
        import loky
        with loky.get_reusable_executor(max_workers=1) as executor:
            check(executor.submit(answer, tensors()).result())
            # By cloudpickle.
            check(executor.submit(lambda xs: answer(xs), tensors()).result())
        """,
}


def check_run(code: str) -> None:
    """Run code that checks itself, after `BEGIN`."""
    from textwrap import dedent

    assert run_python(BEGIN + dedent(code)) == (0, "", "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_takes_tensors(method: str) -> None:
    """docs/sharing.md, Engines: through pipes and queues, without more."""
    check_run(
        f"""
        import multiprocessing
        context = multiprocessing.get_context({method!r})
        with context.Pool(1) as pool:
            check(pool.apply(answer, (tensors(),)))
        """
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_executors_take_tensors(method: str) -> None:
    """docs/sharing.md, Engines: those of `concurrent.futures`."""
    check_run(
        f"""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        context = multiprocessing.get_context({method!r})
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            check(executor.submit(answer, tensors()).result())
        """
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_takes_tensors(engine: str) -> None:
    """docs/sharing.md, Engines: without more."""
    requires(engine)
    check_run(ENGINES[engine])


def test_joblib_stores_a_tensor(tmp_path: Path) -> None:
    """docs/sharing.md, Engines: its pickler is one in Python, and hashes by it."""
    joblib = requires("joblib")
    check_run(
        f"""
        import joblib
        from support.process_work import description
        xs = tensors()
        joblib.dump(xs, {str(tmp_path / "tensors")!r})
        back = joblib.load({str(tmp_path / "tensors")!r})
        assert [*map(description, back)] == [*map(description, xs)]
        assert joblib.hash(xs) == joblib.hash(tensors()) != joblib.hash(xs[:2])
        """
    )
    assert joblib is not None


def test_cloudpickle_takes_tensors_in_functions() -> None:
    """docs/sharing.md, Engines: in a closure, and out of band."""
    requires("cloudpickle")
    check_run(
        """
        import cloudpickle, pickle
        from support.process_work import description
        xs = tensors()
        buffers = []
        text = cloudpickle.dumps(lambda: xs, 5, buffer_callback=buffers.append)
        back = pickle.loads(text, buffers=buffers)()
        assert [*map(description, back)] == [*map(description, xs)]
        assert back[0].data_ptr == xs[0].data_ptr
        """
    )


MPI = """
import pickle
import sys
from mpi4py import MPI
from mpi4py.util.pkl5 import Intracomm
import dlx, dlx.pickling
import numpy as np
from support.process_work import description, tensors

world = MPI.COMM_WORLD
expected = [*map(description, tensors())]
for communicator in world, Intracomm(world):  # in band, and out of band
    if world.rank == 0:
        communicator.send(tensors(), 1)
    else:
        assert [*map(description, communicator.recv())] == expected

# The memory itself, which MPI has no dtype for.
t = dlx.from_buffer(bytearray(range(8)), (4,), "bfloat16")
for buffer in (lambda x: x), (lambda x: [x.raw(), MPI.BYTE]):
    u = dlx.empty((4,), "bfloat16")
    if world.rank == 0:
        world.Send(buffer(t), 1)
    else:
        world.Recv(buffer(u), 0)
        assert u.raw() == t.raw()

MPI.pickle.__init__(dlx.pickling.dumps, pickle.loads)
ml_dtypes = __import__("ml_dtypes")
a = np.arange(4).astype(ml_dtypes.bfloat16)
b = Intracomm(world).bcast(a if world.rank == 0 else None)
assert (a == b).all() and b.dtype == a.dtype
print("passed")
"""


def test_mpi_takes_tensors(tmp_path: Path) -> None:
    """docs/sharing.md, Engines: pickled in and out of band, and their bytes."""
    pytest.importorskip("mpi4py")
    launcher = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    launcher = launcher or shutil.which("mpiexec")
    if launcher is None:
        pytest.skip("mpiexec is not installed")
    program = tmp_path / "program.py"
    program.write_text(MPI)
    inherited = filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
    ran = subprocess.run(
        [launcher, "-n", "2", sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(inherited)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "passed\npassed\n", "")
