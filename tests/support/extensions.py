"""Extensions of `tests/native` and `examples`, compiled with the headers."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy

from support.dlpack_abi import dlpack_include

ROOT = Path(__file__).parents[2]
FOLDERS = (
    str(dlpack_include()),
    numpy.get_include(),
    sysconfig.get_path("include"),
)
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror")


def load(name: str, path: Path) -> ModuleType:
    """Import an extension from a file."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def extension(name: str, *flags: str) -> ModuleType:
    """Return a source as a module, compiled once per process."""
    folders = ROOT / "tests" / "native", ROOT / "examples"
    [source] = [found for path in folders for found in path.glob(f"{name}.[cp]*")]
    with tempfile.TemporaryDirectory() as folder:
        if source.suffix == ".pyx":
            source, flags = translated(source, Path(folder)), (*flags, "-w")
        language = ["cc", "-std=c99"], ["c++", "-std=c++17"]
        command = [*language[source.suffix == ".cpp"], "-O1", "-shared", "-fPIC"]
        command += [*WARNINGS, *flags]
        command += shlex.split(os.environ.get("NATIVE_FLAGS", ""))  # of sanitizers
        command += [f"-I{ROOT / 'include'}"]
        for include in FOLDERS:
            command += ["-isystem", include]
        if sys.platform == "darwin":
            command += ["-undefined", "dynamic_lookup"]
        path = Path(folder, f"{name}.so")
        subprocess.run([*command, "-o", path, source], check=True)
        return load(name, path)


def translated(source: Path, folder: Path) -> Path:
    """Return what Cython makes of a source, with the headers' declarations."""
    target = folder / f"{source.stem}.c"
    command = [sys.executable, "-m", "cython", "-3", f"-I{ROOT / 'include'}"]
    subprocess.run([*command, "-o", target, source], check=True)
    return target


def casts(binding: ModuleType) -> ModuleType:
    """Return `casts.cpp`, bound by nanobind, with its own sources, or by pybind11."""
    if binding.__name__ == "pybind11":
        return extension("casts", "-DWITH_PYBIND11", "-isystem", binding.get_include())
    headers = Path(binding.include_dir())
    own = headers.parent
    flags = ["-isystem", str(headers), "-isystem", str(own / "ext/robin_map/include")]
    return extension("casts", *flags, str(own / "src/nb_combined.cpp"))
