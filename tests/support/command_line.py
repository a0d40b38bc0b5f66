"""`python -m dlx` in a separate process, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

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
    with TemporaryDirectory() as folder:
        return run_in(Path(folder), *arguments, **variables)


def run_with(*arguments: str, **modules: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with modules of the given source before all others."""
    with TemporaryDirectory() as shadow:
        for name, source in modules.items():
            Path(shadow, f"{name}.py").write_text(source, encoding="utf-8")
        path = [shadow, *filter(None, [os.environ.get("PYTHONPATH")])]
        return run(*arguments, PYTHONPATH=os.pathsep.join(path))


@cache
def printed(*arguments: str) -> str:
    """Return what a command prints that succeeds; it runs once for all tests."""
    result = run(*arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
