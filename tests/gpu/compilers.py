"""What compiles kernels, where the machine has it."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest


def need_triton() -> None:
    """Skip the test where Triton cannot compile."""
    pytest.importorskip("triton", exc_type=ImportError)
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not (header.exists() and any(map(shutil.which, ("cc", "gcc", "clang")))):
        pytest.skip("Triton compiles its launcher by a C compiler, with Python.h")
