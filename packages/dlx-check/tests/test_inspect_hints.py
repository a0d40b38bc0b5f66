"""The hints of `dlx.inspect`: what each says is shown with the installed library."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import DLPACK_FLAG_BITMASK_READ_ONLY, exported
from support.inspections import can_be_written, hint
from support.optional_libraries import requires
from support.python_process import run_python


def test_torch_exports_hold_the_tensor_and_not_its_storage() -> None:
    """R15: tests/interop/conformance.json has the same deviation."""
    torch = requires("torch")
    alive = weakref.ref(a := np.zeros(4))
    x = torch.from_numpy(a)
    assert hint(x, "x.detach()")
    capsules = [x.__dlpack__(max_version=(1, 3)), x.detach().__dlpack__()]
    del a
    x.data = torch.ones(4)
    assert alive() is not None
    capsules.pop()
    assert alive() is None


@pytest.mark.parametrize("make", ["nn.Linear(1, 1)", "float32", "device('cpu')"])
def test_what_is_no_tensor_has_no_hints(make: str) -> None:
    """docs/inspect.md: an object of torch is none because torch has made it."""
    torch = requires("torch")
    assert dlx.inspect(eval(f"torch.{make}", {"torch": torch})).hints == ()


def test_torch_exports_negative_views_without_the_sign() -> None:
    """R63."""
    torch = requires("torch")
    x = torch.tensor([1 + 2j]).conj().imag
    assert hint(x, "x.resolve_neg()")
    assert x.item() == -2
    assert np.from_dlpack(x).item() == 2
    assert np.from_dlpack(x.resolve_neg()).item() == -2


def test_torch_exports_conjugated_views_by_its_table() -> None:
    """R125."""
    torch = requires("torch")
    x = torch.tensor([1 + 2j]).conj()
    assert hint(x, "x.resolve_conj()")
    tensor = dlx.inspect(x).tensor
    assert tensor is not None
    assert ctypes.c_float.from_address(tensor.data + 4).value == 2


def test_other_tensors_of_torch_are_no_views() -> None:
    torch = requires("torch")
    [found] = dlx.inspect(torch.ones(3)).hints
    assert "x.detach()" in found.text


@pytest.mark.parametrize(
    ("library", "make"),
    [
        ("jax.numpy", lambda numpy: numpy.ones(3)),
        ("pyarrow", lambda pyarrow: pyarrow.array([1.0] * 3, pyarrow.float32())),
    ],
)
@pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning")
def test_immutable_tensors_are_exported_as_if_they_were_not(
    library: str, make: Callable[[ModuleType], Any]
) -> None:
    """R40."""
    x = make(requires(library))
    assert hint(x, "immutable")
    assert can_be_written(x)


def test_tvm_ffi_drops_the_flag_of_protected_memory() -> None:
    """R42."""
    tvm_ffi = requires("tvm_ffi")
    read_only = dlx.from_dlpack(np.frombuffer(bytes(4), "f4"))
    x = tvm_ffi.from_dlpack(read_only)
    assert hint(x, "READ_ONLY")
    assert exported(read_only).flags & DLPACK_FLAG_BITMASK_READ_ONLY
    assert not exported(x).flags & DLPACK_FLAG_BITMASK_READ_ONLY


@pytest.mark.parametrize("version", ["0.9", "2.14.9", "2.15.1", "3.0", "unknown"])
def test_a_version_that_was_not_run_has_no_hints(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = requires("torch")
    monkeypatch.setattr(torch, "__version__", version)
    assert dlx.inspect(torch.ones(3)).hints == ()


def test_a_build_of_a_version_that_was_run_has_hints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = requires("torch")
    monkeypatch.setattr(torch, "__version__", "2.15.0+cpu")
    assert dlx.inspect(torch.ones(3)).hints != ()


def test_hints_import_no_library() -> None:
    code = "import dlx, sys; dlx.inspect(b''); assert 'torch' not in sys.modules"
    assert run_python(code) == (0, "", "")
