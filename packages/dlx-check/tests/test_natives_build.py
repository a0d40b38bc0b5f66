"""The library in C as it is built: warnings, sanitizers, and where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from sysconfig import get_config_var, get_path

import dlx_check
import pytest
from dlx_check import natives

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src/dlx_check/natives.c"
# A header of CPython's may warn, so it is the system's.
COMPILE = ["-fPIC", "-pthread", f"-isystem{get_path('include')}", str(SOURCE)]
LIMITED = "-DPy_LIMITED_API=0x030B0000"
FREE_THREADED = bool(get_config_var("Py_GIL_DISABLED"))
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def compiler(name: str) -> str:
    """Find a compiler; skip the test where it or Python's headers are missing."""
    if not Path(get_path("include"), "Python.h").exists():
        pytest.skip("Python.h is not installed")
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("macros", [[LIMITED], []], ids=["limited", "whole API"])
def test_the_library_is_built_without_a_warning(
    name: str, macros: list[str], tmp_path: Path
) -> None:
    """The whole API is that of Pythons without a GIL."""
    if macros and FREE_THREADED:
        pytest.skip("this Python has no limited API")
    warnings = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-O2"]
    command = [compiler(name), *warnings, *macros, "-c", *COMPILE]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """Give a folder with a dlx_check of natives alone, without their library."""
    package = tmp_path / "dlx_check"
    package.mkdir()
    for name in ("__init__.py", "abi.py", "natives.py", "version.py"):
        shutil.copy(Path(dlx_check.__file__).with_name(name), package)
    return tmp_path


def test_natives_that_were_not_built_say_what_builds_them(unbuilt: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import dlx_check.natives"],
        env={**os.environ, "PYTHONPATH": str(unbuilt)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ImportError: dlx_check was not built for this Python")
    assert "`pip install ./packages/dlx-check`" in last
    assert "Python.h" in last


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="libasan is loaded by LD_PRELOAD")
def test_the_natives_do_nothing_that_a_sanitizer_sees(unbuilt: Path) -> None:
    """Their other tests, on a build with AddressSanitizer and with UBSan."""
    gcc = compiler("gcc")
    built = unbuilt / "dlx_check" / Path(natives._library._name).name
    command = [gcc, "-shared", "-O1", "-g", *SANITIZE, "-o", str(built), *COMPILE]
    subprocess.run(command, check=True)
    asan = subprocess.run(
        [gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    environment = {
        "LD_PRELOAD": asan.stdout.strip(),
        # CPython keeps memory until the end, so leaks say nothing.
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(unbuilt),
        # The plugin is a part of dlx_check that is not here.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", f"--rootdir={unbuilt}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, "test_natives.py"],
        env={**os.environ, **environment},
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
