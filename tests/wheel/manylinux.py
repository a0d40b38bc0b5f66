"""Build wheels for manylinux_2_28, and sdists; add-ons for this processor alone.

    PYTHONPATH=tests python tests/wheel/manylinux.py FOLDER [abi3t-]ARCHITECTURE...

The wheel for x86_64 is built by the machine's Rust, that for aarch64 by Debian's, whose
package of the standard library can be had for every architecture. Both, and the C of
dlx-check, link against the glibc of Debian 11 (see `linker`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import deflate
from support.debian import REPOSITORY, entered
from systems import RUST, SYSROOTS

HERE = Path(__file__).resolve().parent
MATURIN = Path(sys.executable).parent / "maturin"
ADD_ONS = sorted(REPOSITORY.glob("packages/*"))
BUILD = REPOSITORY / "build/wheels"
CARGO = BUILD / "cargo"
"""Cargo's home: the same path in every system, and no user's name in the library."""


def environment(architecture: str, compiler: str, target: Path) -> dict[str, str]:
    """Return the variables that make cargo and `linker` link with the sysroot."""
    sysroot = SYSROOTS[architecture].root
    multiarch = f"{architecture}-linux-gnu"
    # `RUSTFLAGS` would replace those of .cargo/config.toml, these are added.
    prefix = f"CARGO_TARGET_{architecture.upper()}_UNKNOWN_LINUX_GNU"
    # The last that fits is taken.
    paths = {REPOSITORY: "dlx", CARGO / "registry/src": ""}
    remapped = [f"--remap-path-prefix={path}={name}" for path, name in paths.items()]
    return {
        "CARGO_HOME": str(CARGO),
        "CARGO_TARGET_DIR": str(target),
        f"{prefix}_LINKER": str(HERE / "linker"),
        f"{prefix}_RUSTFLAGS": " ".join(remapped),
        "GETTID": str(BUILD / f"gettid-{architecture}.o"),
        "LINKER": compiler,
        "MULTIARCH": multiarch,
        "SYSROOT": str(sysroot),
    }


def headers(architecture: str) -> tuple[str, str]:
    """Return the options that make gcc find the headers of the sysroot."""
    root = SYSROOTS[architecture].root
    return "-isystem", f"{root}/usr/include/{architecture}-linux-gnu"


def build(folder: Path, kind: str) -> None:
    """Build one wheel of dlx."""
    abi, _, architecture = kind.rpartition("-")
    sysroot = SYSROOTS[architecture].fetch()
    is_native = architecture == os.uname().machine
    compiler = "gcc" if is_native else f"{architecture}-linux-gnu-gcc"
    # Cargo keeps what it has built for one configuration of Python at a time.
    target = REPOSITORY / "target" if is_native and not abi else BUILD / f"target{abi}"
    variables = environment(architecture, compiler, target)
    options = []
    if abi:
        # The stable ABI that Pythons with a GIL and without one share, since 3.15.
        variables["PYO3_CONFIG_FILE"] = str(HERE / "abi3t.txt")
        options = ["--features", "pyo3/abi3t-py315"]
    gettid = (
        *(compiler, f"--sysroot={sysroot}", *headers(architecture), "-O2", "-fPIC"),
        *("-c", str(HERE / "gettid.c"), "-o", variables["GETTID"]),
    )
    maturin = (
        *("build", "--release", "--strip", "--locked", "--compression-level", "9"),
        *("--target", f"{architecture}-unknown-linux-gnu", "--out", str(folder)),
        *options,
    )
    if is_native:
        environ = os.environ | variables
        subprocess.run(gettid, check=True)
        subprocess.run([MATURIN, *maturin], check=True, env=environ)
        return
    root = RUST.fetch()
    shutil.copy(MATURIN, root / "usr/bin/maturin")
    fetch = ["cargo", "fetch", "--quiet", "--locked"]
    subprocess.run(fetch, check=True, env=os.environ | {"CARGO_HOME": str(CARGO)})
    subprocess.run(entered(root, *gettid), check=True)
    # What runs while building: a system that was only unpacked has no `cc`.
    variables["CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER"] = "gcc"
    assigned = [f"{name}={value}" for name, value in variables.items()]
    inside = entered(root, *assigned, "maturin", *maturin, "--offline")
    subprocess.run(inside, check=True)


def build_add_ons(folder: Path, architecture: str) -> None:
    """Build the sdists of the add-ons, and of these the wheels."""
    variables = environment(architecture, "gcc", BUILD) | {
        "CC": str(HERE / "linker"),
        "CFLAGS": " ".join(("-g0", *headers(architecture))),
        # In place of the options that this Python was linked with, paths among them.
        "LDSHARED": f"{HERE / 'linker'} -shared -s",
        # What setuptools takes for the platform that it builds for.
        "_PYTHON_HOST_PLATFORM": f"manylinux_2_28-{architecture}",
    }
    for add_on in ADD_ONS:
        command = sys.executable, "-m", "build", "--quiet", "--outdir", folder, add_on
        subprocess.run(command, check=True, env=os.environ | variables)


def main(folder: str, *kinds: str) -> None:
    """Build into an empty folder."""
    os.chdir(REPOSITORY)
    out = Path(folder).absolute()
    shutil.rmtree(out, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        build(out, kind)
    if os.uname().machine in kinds:
        build_add_ons(out, os.uname().machine)
    deflate.main(*map(str, out.glob("*.whl")))
    subprocess.run([MATURIN, "sdist", "--out", out], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
