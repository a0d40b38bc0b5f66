"""`dlx.DType` of the dtype objects of every library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.optional_libraries import needs

from .matrix import ENVIRONMENT

MODULES = ["torch", "jax.numpy", "mlx.core", "paddle", "tensorflow", "warp"]


@pytest.mark.parametrize("module", MODULES)
def test_a_dtype_object_names_its_dtype(module: str) -> None:
    """R102 to R108: `DType` reads the name that each library's dtype object prints."""
    needs(module)
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


def test_paddles_uint16_prints_as_bfloat16_and_is_none() -> None:
    """R102 to R108: its name tells, so elements are cast as they are asked to."""
    needs("paddle")
    code = """if True:
        import dlx, paddle
        import numpy as np
        assert str(paddle.uint16) == "paddle.bfloat16"
        assert dlx.DType(paddle.uint16) == "uint16"
        assert dlx.DType("bfloat16") != paddle.uint16
        assert dlx.DType(paddle.bfloat16) == "bfloat16"
        made = dlx.convert(np.array([1, 2, 3], "u2"), paddle, dtype="bfloat16")
        assert dlx.from_dlpack(made).tolist() == [1, 2, 3]
        assert dlx.from_dlpack(made).dtype == "bfloat16"
        """
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, env=os.environ | ENVIRONMENT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
