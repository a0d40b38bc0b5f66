"""`dlx.DType` of the dtype objects of every library."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from .matrix import ENVIRONMENT

MODULES = ["torch", "jax.numpy", "mlx.core", "paddle", "tensorflow", "warp"]


@pytest.mark.parametrize("module", MODULES)
def test_a_dtype_object_names_its_dtype(module: str) -> None:
    """R102 to R108: `DType` reads the name that each library's dtype object prints."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip("not installed")
    code = f"""if True:
        import dlx, {module} as module
        for name in ("float32", "int64", "uint8", "bfloat16"):
            assert dlx.DType(getattr(module, name)) == name
        """
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, env=os.environ | ENVIRONMENT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
