"""Extensions of `tests/native`, compiled from C with the headers in `include`."""

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


@cache
def extension(name: str, *flags: str) -> ModuleType:
    """Return a source of `tests/native` as a module, compiled once per process."""
    [source] = (ROOT / "tests" / "native").glob(f"{name}.c*")
    compiler = ["cc", "-std=c99"] if source.suffix == ".c" else ["c++", "-std=c++17"]
    command = [*compiler, "-O1", "-shared", "-fPIC", *WARNINGS, *flags]
    command += shlex.split(os.environ.get("NATIVE_FLAGS", ""))  # tests/sanitizers/asan
    command += [f"-I{ROOT / 'include'}"]
    for folder in FOLDERS:
        command += ["-isystem", folder]
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.so")
        subprocess.run([*command, "-o", path, source], check=True)
        loader = importlib.machinery.ExtensionFileLoader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module
