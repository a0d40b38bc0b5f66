"""Try wheels on systems that this machine is not: other Pythons, glibcs, processors.

Each is unpacked from Debian's packages and entered in namespaces of its own. One that
cannot be had is skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from support.debian import REPOSITORY, Failed, System, entered, source
from systems import ARM, BULLSEYE, EMULATOR, PIP, PYTHONS

BUILD = REPOSITORY / "build/wheels"
ALONE = ("smoke.py", "daemon.py", "doors.py")
"""What runs where dlx is installed alone."""
TOGETHER = ("add_ons.py",)
"""What runs where the add-ons are, too."""
TESTS = (
    *("borrow_accepted", "bridge_out", "buffer_held", "cycles", "mixin_changed"),
    *("mixin_definition", "mixin_like", "from_dlpack_keywords", "races_types"),
    "shape_lengths",
)
"""Tests under emulation, of those that need no library but NumPy, and no compiler."""


@dataclass(frozen=True)
class Place:
    """A Python of a system, the wheel that belongs there, and tests besides scripts."""

    system: System
    python: str
    wheel: str
    tests: tuple[str, ...] = ()


PLACES = (
    Place(PYTHONS, "python3.14", "cp311-abi3-manylinux_2_28_x86_64"),
    Place(PYTHONS, "python3.15", "cp311-abi3-manylinux_2_28_x86_64"),
    Place(PYTHONS, "python3.15", "cp315-abi3.abi3t-manylinux_2_28_x86_64"),
    Place(BULLSEYE, "/opt/python/bin/python3", "cp311-abi3-manylinux_2_28_x86_64"),
    Place(ARM, "python3.14", "cp311-abi3-manylinux_2_28_aarch64", TESTS),
)


def run(*command: str | Path, limit: float = 600) -> None:
    """Run a command, whose output is shown if it fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"no end within {limit:.0f} s") from error
    if ran.returncode:
        raise Failed(f"{ran.stdout[-4000:]}\n{ran.stderr[-2000:]}")


def python_of_bullseye(root: Path) -> None:
    """Build a CPython there, unless that was done."""
    if not (root / "opt/python/bin/python3").exists():
        folder = source("trixie", "python3.13", BUILD / "cpython")
        script = REPOSITORY / "tests/wheel/bullseye_python"
        inside = "env", f"--chdir={folder}", script
        run(*entered(root, *inside), limit=3600)
        shutil.rmtree(folder)


def try_place(
    place: Place,
    wheel: Path,
    add_ons: Sequence[Path],
    pip: Path,
    emulator: Path | None,
) -> None:
    """Install wheels into a new environment of a place, and use them there.

    The add-ons are for this machine's processor.
    """

    def there(*command: str | Path) -> None:
        run(*entered(place.system.root, *command, emulator=emulator), limit=1800)

    environment = BUILD / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    start: tuple[str | Path, ...]
    if emulator:
        # Under emulation pip takes minutes. This one knows the same tags.
        version = place.python.removeprefix("python")
        platform = f"--platform={place.wheel.rpartition('-')[2]}"
        run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index"),
            *("--no-deps", "--only-binary=:all:", f"--target={environment}"),
            *(platform, f"--python-version={version}", wheel),
        )
        # Debian says which BLAS it is when a package is installed, not unpacked.
        libraries = "/usr/lib/aarch64-linux-gnu"
        found = f"LD_LIBRARY_PATH={libraries}/blas:{libraries}/lapack"
        start = f"PYTHONPATH={environment}", found, place.python
    else:
        there(place.python, "-m", "venv", "--without-pip", environment)
        python = environment / "bin/python"
        # Debian's pip wants certificates, which an unpacked system has none of.
        options = "--quiet", "--no-index", "--use-deprecated=legacy-certs"
        there(python, pip, "install", *options, wheel)
        start = python, "-I"
    for script in ALONE:
        there(*start, REPOSITORY / "tests/wheel" / script)
    if not emulator:
        there(python, pip, "install", *options, *add_ons)
        for script in TOGETHER:
            there(*start, REPOSITORY / "tests/wheel" / script)
    if place.tests:
        files = [
            file
            for name in place.tests
            for file in Path("tests").glob(f"*/test_{name}.py")
        ]
        pytest = "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"
        there(*start, *pytest, *files)


def check(wheels: Sequence[Path], add_ons: Sequence[Path]) -> list[str]:
    """Try the wheels in every place, print a line of each, and return the failures."""
    os.chdir(REPOSITORY)
    BUILD.mkdir(parents=True, exist_ok=True)
    failures, skipped = [], 0
    for place in PLACES:
        name = f"{place.python} of {place.system.name}, {place.wheel}"
        fitting = [each for each in wheels if each.stem.endswith(place.wheel)]
        start = monotonic()
        try:
            if not fitting:
                raise Failed("no such wheel was built")
            root = place.system.fetch()
            pip = next(PIP.fetch().glob("usr/share/python-wheels/pip-*.whl")) / "pip"
            emulator = None
            if place.system is ARM:
                emulator = EMULATOR.fetch() / "usr/bin/qemu-aarch64-static"
            run(*entered(root, "true", emulator=emulator))
            if place.system is BULLSEYE:
                python_of_bullseye(root)
        except Failed as reason:
            skipped += 1
            print(f"{name}: skipped: {reason}", flush=True)
            continue
        try:
            try_place(place, fitting[0], add_ons, pip, emulator)
        except Failed as reason:
            failures.append(f"{name}: {reason}")
            print(f"{name}: FAILED", flush=True)
        else:
            print(f"{name}: ok, {monotonic() - start:.0f} s", flush=True)
    print(f"{len(PLACES) - skipped - len(failures)} places, {skipped} skipped")
    return failures
