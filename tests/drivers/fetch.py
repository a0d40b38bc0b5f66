"""Unpack real drivers into build/drivers, from Debian's packages.

    PYTHONPATH=tests python -m drivers.fetch [NAME...]

Nothing is installed (`support/debian.py`). What cannot be had is noted in `absent.json`
with the reason, and is no error.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from support.debian import Failed, download, unpack

FOLDER = Path(__file__).parents[2] / "build/drivers"
ABSENT = FOLDER / "absent.json"


@dataclass(frozen=True)
class Package:
    """A driver's package, and the suites that have it and what it needs."""

    name: str
    component: str
    suites: tuple[str, ...]
    file: str
    """The library, in whatever folder the package has it."""


CUDA = {
    "cuda-460": Package(
        "libnvidia-tesla-460-cuda1", "non-free", ("sid",), "libcuda.so.1"
    ),
    "cuda-470": Package(
        "libnvidia-tesla-470-cuda1", "non-free", ("bookworm",), "libcuda.so.1"
    ),
    "cuda-535": Package("libcuda1", "non-free", ("bookworm",), "libcuda.so.1"),
    "cuda-550": Package("libcuda1", "non-free", ("trixie",), "libcuda.so.1"),
}
"""By the version of the driver: for CUDA 11.2, 11.4, 12.2 and 12.4."""

HIP = {
    "hip-5.2": Package("libamdhip64-5", "main", ("bookworm",), "libamdhip64.so.5"),
    "hip-5.7": Package("libamdhip64-5", "main", ("trixie",), "libamdhip64.so.5"),
    "hip-6": Package("libamdhip64-6", "main", ("forky",), "libamdhip64.so.6"),
    "hip-7": Package(
        "libamdhip64-7", "main", ("sid", "experimental"), "libamdhip64.so.7"
    ),
}
"""Each with all that it is linked with, down to the C library and its loader."""

DRIVERS = CUDA | HIP


def fetch(name: str) -> None:
    """Fetch one driver, unless it is there."""
    package, target = DRIVERS[name], FOLDER / name
    if target.exists():
        return
    work, root = FOLDER / f"{name}.work", FOLDER / f"{name}.unpacked"
    for folder in (work, root):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    try:
        # What libcuda1 depends on are the parts of an installation.
        archives = download(
            work,
            package.suites,
            [package.name],
            component=package.component,
            alone=name in CUDA,
        )
        unpack(archives, root)
        found = library_in(root, package.file)
        print(f"drivers: {name} is {found.resolve().name}")
        root.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)


def library_in(root: Path, file: str) -> Path:
    """Where the driver's library is."""
    found = sorted(root.glob(f"usr/lib/**/{file}"))
    if not found:
        raise Failed(f"the package has no {file}")
    return found[0]


def main(names: list[str]) -> None:
    """Fetch all that are named, or all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    absent = {}
    for name in names or DRIVERS:
        try:
            fetch(name)
        except Failed as error:
            absent[name] = str(error)
            print(f"drivers: {name} cannot be had, its tests are skipped: {error}")
    ABSENT.write_text(json.dumps(absent))


if __name__ == "__main__":
    main(sys.argv[1:])
