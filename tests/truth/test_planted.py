"""The fuzzer finds each planted bug within a minute."""

from __future__ import annotations

import re

import pytest
from support.optional_libraries import requires

from .session import fuzz

PLANT = "import truth.planted; truth.planted."


def found_with(bug: str, library: str) -> str:
    """Run the fuzzer with a bug for up to a minute, and return its output."""
    ran = fuzz(
        "--seconds=60",
        "--first",
        f"--libraries={library}",
        "--only=np,ml_dtypes,tvm_ffi,torch",
        f"--before={PLANT}{bug}()",
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


def test_a_torch_guard_that_trusts_detached_tensors_is_found() -> None:
    requires("torch")
    found = found_with("believe_in_autograd", "torch")
    assert re.search(r"WRONG: it is .*, and not ", found), found


def test_a_lost_flag_is_found() -> None:
    assert "changes what must not be written" in found_with("drop_read_only", "numpy")


@pytest.mark.parametrize("library", ["numpy"])
def test_a_wrong_stride_is_found(library: str) -> None:
    found = found_with("swap_strides", library)
    assert re.search(r"WRONG: it is .*, and not ", found), found
