"""Targets by the name of a module, or of a distribution."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from dlx_check import CannotCheck, Target
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


def distribution(
    folder: Path, name: str, module: str, version: str = "1.0", text: str = ""
) -> Path:
    """Install a distribution that has one module, as far as its metadata say."""
    (folder / module).mkdir(parents=True)
    (folder / module / "__init__.py").write_text(text)
    said = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    said.mkdir()
    metadata = INSTALLED.format(name=name).lstrip().replace("1.0", version)
    (said / "METADATA").write_text(metadata)
    (said / "RECORD").write_text(f"{module}/__init__.py,,\n")
    return said


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install parts of a namespace, and what has the name of one of them."""
    for name, module, version in (
        ("one-part", "dlxspace/one", "1.1"),
        ("other-part", "dlxspace/other", "1.2"),
        ("other", "dlxother", "1.3"),
    ):
        distribution(tmp_path, name, module, version)
    editable = distribution(tmp_path, "edited", "dlxedited", "1.4")
    (editable / "RECORD").write_text("__editable__.edited.pth,,\n")
    (editable / "top_level.txt").write_text("dlxedited\n")
    loose = tmp_path / "dlxloose"
    loose.mkdir()
    (loose / "__init__.py").write_text("__version__ = '1.5'")
    (loose / "part.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [*sys.modules]:
        if name.startswith(("dlxspace", "dlxedited", "dlxloose")):
            monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "imports", "version"),
    [
        ("other", "import dlxspace.other", "1.2"),
        ("other", "from dlxspace import other", "1.2"),
        ("mine", "import os, numpy as np\nimport dlxspace.one as mine", "1.1"),
        ("other", "import dlxedited", "1.4"),
        ("dlxloose", "import dlxspace.one, dlxloose.part", "1.5"),
        ("mine", "import dlxspace.one, dlxspace.other", "unknown"),
        ("other", "import numpy as np", "unknown"),
    ],
)
def test_a_version_is_of_the_distribution_that_has_the_module(
    installed: Path, name: str, imports: str, version: str
) -> None:
    """`help(Target)`: not of the first import, nor of who has the library's name."""
    target = Target(name=name, imports=imports)
    assert target.names
    assert target.version == version


def test_of_several_modules_the_one_whose_functions_are_used_has_the_version(
    installed: Path,
) -> None:
    """`help(Target)`: its name may be none of the modules'."""
    imports = "import dlxspace.one as one\nimport dlxspace.other as other"
    target = Target("Mine", imports, make="lambda a: other.make(a)")
    assert target.names
    assert target.version == "1.2"


def test_a_distribution_that_is_named_has_the_version(installed: Path) -> None:
    """`help(Target)`: `distribution`; builds for a device may have another name."""
    for name, version in (("one-part", "1.1"), ("not-installed", "1.2")):
        target = Target("mine", "import dlxspace.other", distribution=name)
        assert target.names
        assert target.version == version


def test_help_explains_each_field() -> None:
    """README.md, A target: `help(Target)`."""
    text = pydoc.render_doc(Target, renderer=pydoc._PlainTextDoc())  # type: ignore[attr-defined]
    for each in fields(Target):
        assert f"\n |  {each.name}: " in text


def test_the_command_takes_a_distribution() -> None:
    """README.md: `python -m dlx check array-api-strict`, or why it cannot."""
    command = [sys.executable, "-m", "dlx", "check", "--explain", "producer.refuses"]
    said = subprocess.run(
        [*command, "array-api-strict"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0
    assert "Traceback" not in said.stderr
