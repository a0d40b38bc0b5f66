"""`python -m dlx` in another process: a new one, or a fork that has its imports."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from support.python_process import run_after

DEMO_LIBRARIES = ("numpy", "torch", "tvm_ffi", "array_api_strict", "pyarrow", "jax")
INSTALLED = [name for name in DEMO_LIBRARIES if find_spec(name)]

ABSENT = "raise ImportError('not here')"
ENDS = "import os; os.kill(os.getpid(), 11)"


def run_in(
    folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, with these environment variables."""
    # What makes rich take a pipe for a terminal would change the text under test.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONIOENCODING")
    }
    environment |= {"PYTHONIOENCODING": "utf-8", **variables}
    return subprocess.run(
        [sys.executable, "-m", "dlx", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        cwd=folder,
        timeout=300,
    )


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in an empty folder, with these environment variables."""
    if not variables:
        return run_with(*arguments)
    with TemporaryDirectory() as folder:
        return run_in(Path(folder), *arguments, **variables)


IMPORTS = """
import json, os, runpy, sys
import dlx_check.core, dlx_share.sharing, numpy
import rich.console, rich.progress, rich.table
from dlx_check.cli import _parser
_parser()
"""
FORKED = """
folder, shadow, names, arguments = {given!r}
for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)
os.chdir(folder)
sys.path.insert(1, shadow)
os.environ["PYTHONPATH"] = os.pathsep.join([shadow, os.environ["PYTHONPATH"]])
for name in list(sys.modules):
    if name.partition(".")[0] in names:
        del sys.modules[name]
sys.argv[1:] = arguments
{first}
runpy.run_module("dlx", run_name="__main__")
"""


def run_with(
    *arguments: str, first: str = "", unbuffered: str = "", **modules: str
) -> subprocess.CompletedProcess[str]:
    """Run it with modules of the given source before all others, and code before it.

    Unlike `run_in` it forks a process that has imported what every command does.
    """
    variables = {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": unbuffered}
    with TemporaryDirectory() as folder, TemporaryDirectory() as shadow:
        for name, source in modules.items():
            Path(shadow, f"{name}.py").write_text(source, encoding="utf-8")
        given = (folder, shadow, tuple(modules), list(arguments))
        code = FORKED.format(given=given, first=first)
        ran = run_after(IMPORTS, code, PYTHONMALLOC="", **variables)
    return subprocess.CompletedProcess(arguments, *ran)


@cache
def printed(*arguments: str) -> str:
    """Return what a command prints that succeeds; it runs once for all tests."""
    with TemporaryDirectory() as folder:
        result = run_in(Path(folder), *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
