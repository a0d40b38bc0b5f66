"""Unpack real drivers into build/drivers, from Debian's packages.

    python tests/drivers/fetch.py [NAME...]

Nothing is installed and no root is needed: apt works in folders of its own, and checks
signatures and checksums with Debian's keys. DEBIAN_MIRROR names another mirror; proxies
are those of apt's configuration. What cannot be had is noted in `absent.json` with the
reason, and is no error.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build/drivers"
ABSENT = FOLDER / "absent.json"
MIRROR = os.environ.get("DEBIAN_MIRROR") or "http://deb.debian.org/debian"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


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


class Failed(Exception):
    """A command that failed, with what it said last."""


def run(*command: str | Path, folder: Path) -> None:
    """Run a command in a folder."""
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError as error:
        raise Failed(f"{command[0]} cannot be run: {error.strerror}") from error
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip().splitlines() or ["nothing"]
        raise Failed(f"{command[0]} failed: {said[-1]}")


def apt(work: Path, *command: str) -> None:
    """Run apt-get on a machine of its own, on which nothing is installed."""
    settings = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": work,
        "Dir::State::Lists": work / "lists",
        "Dir::State::Status": work / "status",
        "Dir::Cache": work,
        "Dir::Cache::Archives": work / "archives",
        "APT::Sandbox::User": getpass.getuser(),
        "APT::Install-Recommends": "0",
        "APT::Update::Error-Mode": "any",
        "Acquire::Retries": "2",
        "Debug::NoLocking": "1",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    # `download` writes to the folder that it is run in.
    command = ("--quiet", "--yes", *options, *command)
    run("apt-get", *command, folder=work / "archives")


def download(package: Package, work: Path, *, alone: bool) -> list[Path]:
    """Download a package, alone or with all that it depends on."""
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    sources = [
        f"deb [signed-by={KEYS}] {MIRROR} {suite} {package.component}\n"
        for suite in package.suites
    ]
    (work / "sources.list").write_text("".join(sources))
    apt(work, "update")
    suite = f"--target-release={package.suites[-1]}"
    if alone:
        # What libcuda1 depends on are the parts of an installation.
        apt(work, suite, "download", package.name)
    else:
        apt(work, suite, "--download-only", "install", package.name)
    return sorted(work.glob("archives/*.deb"))


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
        archives = download(package, work, alone=name in CUDA)
        for archive in archives:
            run("dpkg-deb", "--extract", archive, root, folder=root)
        found = library_in(root, package.file)
        (root / "packages").write_text("".join(f"{each.name}\n" for each in archives))
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
