"""Targets by the name of a module, or of a distribution."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dlx_check import CannotCheck
from dlx_check.conformance.targets import load

INSTALLED = """
Metadata-Version: 2.1
Name: {name}
Version: 1.0
"""


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("numpy", "numpy"),
        ("apache-tvm-ffi", "tvm_ffi"),
        ("Apache_TVM.FFI", "tvm_ffi"),
        ("array-api-strict", "array_api_strict"),
        ("cuda-core", "cuda.core"),
        ("warp-lang", "warp"),
        ("paddlepaddle", "paddle"),
        ("tensorflow-cpu", "tensorflow"),
    ],
)
def test_a_distribution_is_a_target(name: str, target: str) -> None:
    """README.md: what pip installs is known by that name, too."""
    assert load(name).name == target


def test_a_distribution_that_has_the_module_of_a_target_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README.md: builds for a device have distributions of their own."""
    distribution(tmp_path, "onnxruntime-gpu", "onnxruntime")
    distribution(tmp_path, "cupy-cuda13x", "cupy")
    distribution(tmp_path, "scikit-nothing", "sknothing")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_bytes(b"\xff\xfe")
    monkeypatch.syspath_prepend(tmp_path)
    assert load("onnxruntime-gpu").name == "onnxruntime"
    with pytest.raises(CannotCheck, match="its tensors are on a GPU"):
        load("cupy-cuda13x")
    for name in ("scikit-nothing", "broken", "", "../broken"):
        with pytest.raises(CannotCheck, match=f"no target '{name}'"):
            load(name)


def distribution(folder: Path, name: str, module: str) -> None:
    """Install a distribution that has one module, as far as its metadata say."""
    (folder / module).mkdir()
    (folder / module / "__init__.py").touch()
    said = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    said.mkdir()
    (said / "METADATA").write_text(INSTALLED.format(name=name).lstrip())
    (said / "RECORD").write_text(f"{module}/__init__.py,,\n")


def test_the_command_takes_a_distribution() -> None:
    """README.md: `python -m dlx check array-api-strict`, or why it cannot."""
    command = [sys.executable, "-m", "dlx", "check", "--explain", "producer.refuses"]
    said = subprocess.run(
        [*command, "array-api-strict"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0
    assert "Traceback" not in said.stderr
