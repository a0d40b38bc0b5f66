"""Build the kit: one folder that runs on a GPU machine without a network.

    python tests/gpu_kit/build.py WHEEL PYTHON...     # such as python3.12

`build/gpu-kit/run` is its only command. It carries wheels of dlx, pytest, rich,
numba-cuda and tvm-ffi, and of what these need; torch, CuPy and JAX are the
machine's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "build/gpu-kit"
FOLDERS = ("tests/gpu", "tests/gpu_kit", "tests/support", "benches")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Newest first: pip prefers the first platform that a package has a wheel for.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (34, 28, 27, 26, 24, 17, 12, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
RUN = """#!/bin/sh
exec "${PYTHON:-python3}" "$(dirname "$0")/tests/gpu_kit/run.py" "$@"
"""


def copy_sources() -> None:
    """Copy the tests and benchmarks, without what they have left behind."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "results")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, KIT / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", KIT)
    run = KIT / "run"
    run.write_text(RUN)
    run.chmod(0o755)


def download(python: str) -> None:
    """Download the wheels for a version of Python."""
    version = python.removeprefix("python")
    abi = f"cp{version.replace('.', '')}"
    command = [sys.executable, "-m", "pip", "download", "--quiet"]
    command += [
        "--only-binary=:all:",
        "--implementation=cp",
        f"--dest={KIT / 'wheels'}",
    ]
    command += [
        f"--python-version={version}",
        f"--abi={abi}",
        "--abi=abi3",
        "--abi=none",
    ]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    asked = PROJECT["dependency-groups"]["gpu-kit"]
    subprocess.run([*command, *asked], check=True)


def compile_calls() -> None:
    """Compile what the benchmark loads: the machine may have no compiler."""
    sys.path.insert(0, str(ROOT / "benches/gpu"))
    from driver_calls import build

    build(KIT / "driver_calls.so")


def main(wheel: str, *pythons: str) -> None:
    """Build it anew."""
    shutil.rmtree(KIT, ignore_errors=True)
    copy_sources()
    (KIT / "wheels").mkdir()
    shutil.copy(wheel, KIT / "wheels")
    for python in pythons:
        download(python)
    compile_calls()
    size = sum(file.stat().st_size for file in KIT.rglob("*") if file.is_file())
    print(f"{KIT.relative_to(ROOT)}: {size / 1e6:.0f} MB, for {' '.join(pythons)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
