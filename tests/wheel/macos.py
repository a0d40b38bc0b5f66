"""Build a wheel for macOS on ARM by Zig's linker, which brings macOS's symbols.

    PYTHONPATH=tests python tests/wheel/macos.py FOLDER

It shows that dlx links there. No macOS has loaded it, so it is not to be released: the
release workflow builds its own on a Mac, and tests that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from manylinux import BUILD, CARGO, HERE, MATURIN
from ports import SOURCED, prepare
from support.debian import REPOSITORY, entered
from systems import RUST

ZIG = BUILD / "zig"
"""Apart from the tools: it has 0.4 GB."""


def main(folder: str) -> int:
    """Build into a folder, inside of Debian."""
    os.chdir(REPOSITORY)
    prepare()
    shutil.copy(MATURIN, RUST.root / "usr/bin/maturin")
    if not (ZIG / "ziglang/zig").exists():
        pip = sys.executable, "-m", "pip", "install", "--target", ZIG, "ziglang>=0.15"
        subprocess.run(pip, check=True)
    variables = (
        # To strip there takes LLVM's objcopy.
        *(*SOURCED, "CARGO_PROFILE_RELEASE_STRIP=none"),
        f"CARGO_TARGET_DIR={BUILD / 'macos'}",
        *(f"PATH=/usr/bin:{ZIG / 'ziglang'}", f"PYO3_CONFIG_FILE={HERE / 'abi3.txt'}"),
        "CARGO_TARGET_AARCH64_APPLE_DARWIN_RUSTFLAGS="
        f"--remap-path-prefix={CARGO}/registry/src= "
        f"--remap-path-prefix={REPOSITORY}=dlx",
    )
    maturin = (
        *("maturin", "build", "--zig", "--release", "--locked", "--offline"),
        *("-Zbuild-std=std,panic_unwind", "--target=aarch64-apple-darwin"),
        f"--out={Path(folder).absolute()}",
    )
    failed = subprocess.call(entered(RUST.root, *variables, *maturin))
    print(f"macOS arm64, linked and not tested: {'FAILED' if failed else 'ok'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
