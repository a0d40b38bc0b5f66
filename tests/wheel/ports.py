"""Check that dlx compiles for systems that nothing here can run.

    PYTHONPATH=tests python tests/wheel/ports.py

The standard library is checked along with it, from Debian's source.
"""

from __future__ import annotations

import os
import subprocess
import sys

from manylinux import BUILD, CARGO
from support.debian import REPOSITORY, entered
from systems import RUST

TARGETS = (
    "x86_64-pc-windows-gnu",
    "x86_64-pc-windows-msvc",
    "aarch64-apple-darwin",
    "x86_64-unknown-linux-musl",
)


SOURCED = (
    *("RUSTC_BOOTSTRAP=1", "PYO3_NO_PYTHON=1", "PYO3_BUILD_EXTENSION_MODULE=1"),
    *("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=gcc", f"CARGO_HOME={CARGO}"),
)
"""Variables with which cargo builds the standard library from its source."""


def prepare() -> None:
    """Fetch Debian's Rust, and all crates, those of the standard library, too."""
    RUST.fetch()
    fetch = ["cargo", "fetch", "--quiet", "--locked", "--manifest-path"]
    environ = os.environ | {"CARGO_HOME": str(CARGO), "RUSTC_BOOTSTRAP": "1"}
    for folder in (REPOSITORY, RUST.root / "usr/lib/rustlib/src/rust/library"):
        subprocess.run([*fetch, folder / "Cargo.toml"], check=True, env=environ)


def check(target: str) -> bool:
    """Say whether dlx compiles for `target`."""
    cargo = (
        *("cargo", "check", "--quiet", "--offline", "--locked", "--lib"),
        *("-Zbuild-std=std,panic_unwind", "--target", target),
    )
    variables = (*SOURCED, f"CARGO_TARGET_DIR={BUILD / 'ports'}")
    warnings = "CARGO_BUILD_WARNINGS=deny"
    return not subprocess.call(entered(RUST.root, *variables, warnings, *cargo))


def main() -> int:
    """Check every target."""
    os.chdir(REPOSITORY)
    prepare()
    failed = 0
    for target in TARGETS:
        compiles = check(target)
        print(f"{target}: {'ok' if compiles else 'FAILED'}", flush=True)
        failed += not compiles
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
