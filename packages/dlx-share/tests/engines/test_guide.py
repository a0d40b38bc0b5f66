"""packages/dlx-share/examples: the programs for each engine run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.optional_libraries import requires

from .engine import engine

PROGRAMS = {
    "dask_workers": ("distributed", "torch"),
    "ray_store": ("ray", "jax"),
    "ray_actors": ("ray", "torch"),
    "mpi_ranks": ("mpi4py", "jax"),
    "pools": ("joblib", "torch"),
}
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs(name: str) -> None:
    """README.md, Engines: with the real engine."""
    needs, library = PROGRAMS[name]
    engine(needs)
    requires(library)
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    if needs == "mpi4py":
        launcher = Path(sys.executable).with_name("mpiexec")
        command[1:1] = ["-m", "mpi4py"]
        command = [str(launcher), "-n", "2", *command]
    subprocess.run(command, check=True, timeout=120)


def test_each_program_is_run() -> None:
    """README.md, Engines: dask, Ray and its transport, MPI."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PROGRAMS}
