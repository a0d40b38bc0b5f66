"""The systems from Debian that wheels are built with and tried on."""

from __future__ import annotations

from support.debian import System

ENTERED = ("base-files", "coreutils", "dash")
"""What a system needs in which commands run."""

LIBRARIES = (
    "libc6",
    "libc6-dev",
    "libgcc-10-dev",
    "libgcc-s1",
    "linux-libc-dev",
)

SYSROOTS = {
    "x86_64": System("sysroot-x86_64", "bullseye", "amd64", LIBRARIES, alone=True),
    "aarch64": System("sysroot-aarch64", "bullseye", "arm64", LIBRARIES, alone=True),
}
"""What wheels are linked with: glibc 2.31 with a linker that hides what is newer than
2.28, which no suite that is still kept has."""

RUST = System(
    "rust",
    "sid",
    "amd64",
    (
        *(*ENTERED, "cargo", "gcc", "libc6-dev", "rust-src"),
        *("binutils-mingw-w64-x86-64", "gcc-aarch64-linux-gnu"),
    ),
    added=(("arm64", ("libstd-rust-dev", "libstd-rust-1.97")),),
)
"""A Rust that has the standard library for ARM, and its source for all else."""

PYTHONS = System("pythons", "sid", "amd64", (*ENTERED, "python3.14", "python3.15"))

BULLSEYE = System(
    "bullseye",
    "bullseye",
    "amd64",
    (
        *(*ENTERED, "diffutils", "findutils", "gawk", "grep", "sed", "tar"),
        *("gcc", "libc6-dev", "libffi-dev", "make", "pkg-config", "zlib1g-dev"),
    ),
)
"""The oldest glibc, and what builds a Python there: its own is 3.9."""

ARM = System(
    "arm",
    "sid",
    "arm64",
    (
        *ENTERED,
        "python3-hypothesis",
        "python3-numpy",
        "python3-pytest",
        "python3.14",
    ),
)

PIP = System("pip", "sid", "amd64", ("python3-pip-whl",), alone=True)

EMULATOR = System("emulator", "bookworm", "amd64", ("qemu-user-static",), alone=True)
