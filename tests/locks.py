"""Move the locks to the newest releases, or say how old their pins are.

    python tests/locks.py           # rewrite locks/*.txt; print what was in them
    python tests/locks.py --check   # print the same; exit 1 for an old pin

A lock pins, for one version of Python on Linux, all that the groups of pyproject.toml
ask for. A pin is old after `DAYS` if there is a newer release for its Python.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOCKS = {path.stem: path for path in ROOT.glob("locks/*.txt")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Those of GPU machines have CUDA's libraries, and versions of their own.
GROUPS = [name for name in PROJECT["dependency-groups"] if not name.startswith("gpu")]
DAYS = 60


class Release(NamedTuple):
    """A version of a library, and when it was uploaded."""

    version: str
    uploaded: datetime

    @property
    def age(self) -> int:
        """Days since then."""
        return (datetime.now(UTC) - self.uploaded).days


def releases(python: str, *asked: str) -> dict[str, Release]:
    """Return what uv resolves for a version of Python."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet"]
    command += ["--system-certs", "--no-header", "--format", "pylock.toml"]
    command += ["--python-version", python, *asked]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"locks: Python {python}: {ran.stderr}")
    return {
        package["name"]: Release(package["version"], uploaded(package))
        for package in tomllib.loads(ran.stdout)["packages"]
    }


def uploaded(package: dict[str, Any]) -> datetime:
    """Return when the first file of a release was uploaded."""
    files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
    times = [file["upload-time"] for file in files if "upload-time" in file]
    return min(times, default=datetime.now(UTC))


def newest(python: str) -> dict[str, Release]:
    """Return the newest releases that fit together."""
    groups = (f"--group={name}" for name in GROUPS)
    return releases(python, "pyproject.toml", "--extra=test", *groups, "--upgrade")


def named() -> set[str]:
    """Return the libraries that the project names itself."""
    lines = [*PROJECT["project"]["optional-dependencies"]["test"]]
    for group in GROUPS:
        lines += PROJECT["dependency-groups"][group]
    return {canonicalize_name(Requirement(line).name) for line in lines}


class Row(NamedTuple):
    """A pin of a library, of one or more Pythons."""

    library: str
    pythons: str
    pin: str
    newest: str
    age: int
    is_old: bool


def rows(
    pinned: dict[str, dict[str, Release]], found: dict[str, dict[str, Release]]
) -> Iterator[Row]:
    """Compare the pins with what was found, for libraries that the project names."""
    for library in sorted(named()):
        # A release has files for each Python, which may come days apart.
        pythons: dict[tuple[str, str], list[str]] = {}
        ages: dict[tuple[str, str], int] = {}
        for python, pins in pinned.items():
            if (pin := pins.get(library)) is not None:
                key = pin.version, found[python].get(library, pin).version
                pythons.setdefault(key, []).append(python)
                ages[key] = max(pin.age, ages.get(key, 0))
        for (pinned_version, there), names in pythons.items():
            age = ages[pinned_version, there]
            is_old = age > DAYS and pinned_version != there
            yield Row(library, " ".join(names), pinned_version, there, age, is_old)


def main(*arguments: str) -> int:
    """Rewrite the locks, or check them."""
    check = "--check" in arguments
    pinned, found = {}, {}
    for python, path in sorted(LOCKS.items(), key=lambda item: Version(item[0])):
        pinned[python] = releases(python, str(path), "--no-deps")
        found[python] = newest(python)
        if not check:
            lines = (f"{name}=={each.version}" for name, each in found[python].items())
            path.write_text("\n".join(sorted(lines)) + "\n")
    table = list(rows(pinned, found))
    print(f"{'library':22} {'Python':20} {'pin':16} {'newest':16} age in days")
    for row in table:
        old = " OLD" if row.is_old else ""
        print(f"{row[0]:22} {row[1]:20} {row[2]:16} {row[3]:16} {row[4]:5}{old}")
    return int(check and any(row.is_old for row in table))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
