"""docs/sharing.md: the programs for each engine run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import BLOCK, ENGINES, TEXTS
from support.optional_libraries import requires

from .engine import engine

TEXT = TEXTS["docs/sharing.md"]
PROGRAMS = [
    (engine_match[2], code)
    for _, code in BLOCK.findall(TEXT)
    if (engine_match := ENGINES.search(code))
]


@pytest.mark.parametrize(("name", "code"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_a_program_runs(name: str, code: str, tmp_path: Path) -> None:
    """docs/sharing.md: with the real engine."""
    engine(name)
    requires("torch" if "import torch" in code else "jax")
    program = tmp_path / "program.py"
    program.write_text(code)
    command = [sys.executable, str(program)]
    if name == "mpi4py":
        launcher = Path(sys.executable).with_name("mpiexec")
        command = [
            str(launcher),
            "-n",
            "2",
            sys.executable,
            "-m",
            "mpi4py",
            str(program),
        ]
    subprocess.run(command, check=True, timeout=120)


def test_there_is_a_program_for_each_engine() -> None:
    """docs/sharing.md: dask, Ray and its transport, MPI."""
    assert [name for name, _ in PROGRAMS] == ["distributed", "ray", "ray", "mpi4py"]
