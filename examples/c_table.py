"""An array type in C with an exchange table, `c_table.c`: compiled, and used."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dlx

SOURCE = Path(__file__).with_suffix(".c")
FOLDER = SOURCE.parents[1] / "build" / "examples"
IMPORTS = """
import dlx
import numpy as np
from c_table import load

c_table = load()


def make(a):
    x = dlx.empty(a.shape, str(a.dtype), like=c_table.Array)
    np.from_dlpack(x)[...] = a
    return x
"""


def dlpack_include() -> Path:
    """Return the folder of ``dlpack/dlpack.h``: tvm-ffi installs that of DLPack 1.3."""
    from tvm_ffi import libinfo

    return Path(libinfo.find_dlpack_include_path())


@cache
def load() -> Any:
    """Compile the module, unless it is newer than its source, and import it."""
    target = FOLDER / f"c_table{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not target.exists() or target.stat().st_mtime < SOURCE.stat().st_mtime:
        FOLDER.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        command = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-O2"]
        command += ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        command += [f"-I{sysconfig.get_path('include')}", f"-I{dlpack_include()}"]
        subprocess.run([*command, str(SOURCE), "-o", str(partial)], check=True)
        partial.replace(target)
    spec = importlib.util.spec_from_file_location("c_table", target)
    if spec is None or spec.loader is None:
        raise ImportError(f"{target.name} is no extension module of this Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def target() -> Any:
    """Say how ``python -m dlx check c_table:target`` makes an array and looks at it."""
    from dlx_check.conformance import Target

    return Target(
        name="c_table",
        imports=IMPORTS,
        type="c_table.Array",
        make="make",
        take="lambda x: dlx.convert(x, c_table.Array)",
        show="lambda x: np.from_dlpack(x).copy()",
        address="lambda x: dlx.from_dlpack(x).data_ptr",
        writable="lambda x: not dlx.from_dlpack(x).readonly",
        keywords=frozenset(),
        profiles="dlpack array-api table",
    )


def main() -> None:
    """Let other libraries write to an array of C, and compiled code return one."""
    a = load().zeros(3)
    if find_spec("numpy"):
        import numpy as np

        np.from_dlpack(a)[0] = 1  # the same memory, by `__dlpack__`
    if find_spec("torch"):
        import torch

        torch.from_dlpack(a)[1] = 2
    print(dlx.from_dlpack(a).tolist())  # by the table
    if find_spec("tvm_ffi"):
        from compiled import load_doubled

        print(type(load_doubled()(a)).__name__)  # Array: by the table, both ways


if __name__ == "__main__":
    main()
