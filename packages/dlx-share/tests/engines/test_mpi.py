"""Tensors between two processes of MPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from support.optional_libraries import requires

from .engine import engine

engine("mpi4py")

BEGIN = """
from mpi4py import MPI
from mpi4py.util import pkl5
import pickle
import dlx, dlx_share
import numpy as np
from engines.cases import BIG, CASES, MIB, address, describe, place

world = MPI.COMM_WORLD
here, other = world.rank, 1 - world.rank
"""


def check_run(tmp_path: Path, code: str) -> None:
    """Run a program that checks itself as two processes of MPI."""
    beside = Path(sys.executable).parent
    launcher = shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec")
    assert launcher is not None, "mpi4py has been installed without an MPI"
    program = tmp_path / "program.py"
    program.write_text(BEGIN + dedent(code) + 'print("passed")\n')
    ran = subprocess.run(
        # `-m mpi4py` ends both processes if one fails.
        [launcher, "-n", "2", sys.executable, "-m", "mpi4py", str(program)],
        env=os.environ | {"FI_PROVIDER": "tcp", "HYDRA_IFACE": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("passed") == 2


def test_every_tensor_arrives_as_it_was(tmp_path: Path) -> None:
    """README.md, Engines: in band and out of band, with other libraries' too."""
    requires("torch"), requires("jax")
    check_run(
        tmp_path,
        """
        for each in MPI.pickle, pkl5.pickle:
            each.__init__(dlx_share.dumps, pickle.loads)
        cases = {case: make for case, make in CASES.items() if "mlx" not in case}
        for communicator in world, pkl5.Intracomm(world):
            for case, make in cases.items():
                if here == 0:
                    communicator.send(make(), 1)
                else:
                    x, expected = communicator.recv(source=0), make()
                    if "read-only" not in case and not isinstance(x, dlx.Tensor):
                        assert describe(x) == describe(expected), case
                    assert describe(x)[-1] == describe(expected)[-1], case
        """,
    )


def test_a_tensor_of_dlx_and_a_mixin_class_need_no_call(tmp_path: Path) -> None:
    """README.md, Engines: they pickle by themselves, and what is sent is theirs."""
    check_run(
        tmp_path,
        """
        names = [case for case in CASES if case.split()[0] in ("dlx", "mixin")]
        communicator = pkl5.Intracomm(world)
        made = [CASES[name]() for name in names] if here == 0 else None
        for x, name in zip(communicator.bcast(made), names, strict=True):
            assert describe(x)[-1] == describe(CASES[name]())[-1], name
        """,
    )


def test_the_memory_itself_is_sent_and_received(tmp_path: Path) -> None:
    """README.md, Engines: numbers as numbers, all others as bytes."""
    check_run(
        tmp_path,
        """
        for dtype in "float32", "int64", "bfloat16", "float8_e5m2", "int4":
            t = dlx.from_buffer(bytearray(range(48)), (6,), dtype, copy=True)
            u = dlx.empty((6,), dtype)
            for buffer in (lambda x: x), (lambda x: [x.raw(), MPI.BYTE]):
                if here == 0:
                    world.Send(buffer(t), 1)
                else:
                    world.Recv(buffer(u), 0)
                    assert u.raw() == t.raw(), dtype
        t = dlx.from_dlpack(np.full(3, here + 1.0))
        total = dlx.empty((3,), "float64")
        world.Allreduce(t, total)
        assert total.tolist() == [3, 3, 3]
        everything = dlx.empty((2, 3), "float64")
        world.Allgather(t, everything)
        assert everything.tolist() == [[1, 1, 1], [2, 2, 2]]
        """,
    )


def test_read_only_memory_receives_nothing(tmp_path: Path) -> None:
    """README.md, Engines: tried by writing."""
    check_run(
        tmp_path,
        """
        frozen = dlx.from_buffer(bytes(8), (2,), "float32")
        if here == 0:
            world.Send(np.ones(2, "float32"), 1)
        else:
            try:
                world.Recv(frozen, 0)
            except (BufferError, ValueError, TypeError):
                pass
            else:
                raise AssertionError("read-only memory was written to")
            world.Recv(np.empty(2, "float32"), 0)
        assert frozen.tolist() == [0, 0]
        """,
    )


def test_a_handle_is_the_same_pages_in_both(tmp_path: Path) -> None:
    """README.md, Engines: device and inode are equal, and writes are seen."""
    check_run(
        tmp_path,
        """
        shared = dlx.share(BIG["dlx"]()) if here == 0 else None
        t = dlx.attach(world.bcast(shared))
        if here == 1:
            np.from_dlpack(t)[5] = 7
        world.Barrier()
        assert np.from_dlpack(t)[5] == 7
        assert len(set(world.allgather(place(t.data_ptr)))) == 1
        """,
    )
