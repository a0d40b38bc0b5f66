"""The function of `doubled.cc`, compiled on first use."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm_ffi import libinfo

SOURCE = Path(__file__).with_name("doubled.cc")
FOLDER = SOURCE.parents[1] / "build" / "examples"


def compile_doubled() -> Path:
    """Return the shared library; rebuild it if its source is newer."""
    target = FOLDER / f"doubled-{tvm_ffi.__version__}.so"
    if target.exists() and target.stat().st_mtime >= SOURCE.stat().st_mtime:
        return target
    FOLDER.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O2"]
    command += ["-shared", "-fPIC", f"-I{libinfo.find_include_path()}"]
    command += [f"-I{libinfo.find_dlpack_include_path()}", str(SOURCE)]
    command += [libinfo.find_libtvm_ffi(), "-o", str(partial)]
    subprocess.run(command, check=True)
    partial.replace(target)
    return target


def load_doubled() -> Callable[[Any], Any]:
    """Load ``doubled(x)``: a new tensor of ``x``'s class with its elements doubled."""
    module = tvm_ffi.load_module(  # pyright: ignore[reportUnknownMemberType]
        compile_doubled()
    )
    doubled: Callable[[Any], Any] = module.doubled
    return doubled
