"""Look at the objects of libraries, each library in a process of its own.

``python -m property.run jax`` prints what differs from JAX's word, listed or not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from interop.matrix import ENVIRONMENT

from .libraries import LIBRARIES
from .look import Difference

SECONDS = 600.0
"""The time limit of a library, whose import alone takes long on a busy machine."""


class Report(NamedTuple):
    """What was found in a library."""

    library: str
    objects: tuple[str, ...] = ()
    looks: int = 0
    differences: tuple[Difference, ...] = ()
    missing: str = ""
    """Why the library cannot be imported."""
    ended: str = ""
    """How and where the process ended before it was done."""

    def __str__(self) -> str:
        """Say how much was looked at, and what differs."""
        name = f"{self.library} {version_of(self.library)}"
        if self.missing:
            return f"{self.library}: not installed ({self.missing})"
        lines = [
            f"{name}: {len(self.objects)} objects, {self.looks} looks, "
            f"{len(self.differences)} differences",
            *grouped(self.differences),
        ]
        return "\n".join([*lines, *([self.ended] if self.ended else [])])


def version_of(library: str) -> str:
    """Return the version of a library, or ""."""
    try:
        return version(LIBRARIES[library].requirement)
    except PackageNotFoundError:
        return ""


def grouped(differences: Iterable[Difference]) -> Iterator[str]:
    """Yield a line for all ways and objects that differ alike."""
    alike: dict[str, list[Difference]] = defaultdict(list)
    for each in differences:
        alike[each.text].append(each)
    for text, those in alike.items():
        ways = " ".join(dict.fromkeys(each.way for each in those))
        objects = ", ".join(dict.fromkeys(each.object for each in those))
        yield f"  {len(those)} x {text}\n      ways: {ways}\n      objects: {objects}"


def run(library: str, *, seconds: float = SECONDS, before: str = "") -> Report:
    """Look at a library; ``before`` is code that its process runs first."""
    tests = str(Path(__file__).parents[1])
    paths = [tests, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "ignore", "-m", "property.child", library, before]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
            ended = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
            ended = f"did not end in {seconds:g} s"
    return read(library, out, ended, errors)


def read(library: str, out: str, ended: str, errors: str) -> Report:
    """Read what a child wrote: objects, looks and differences, in their order."""
    objects: list[str] = []
    differences = []
    at, looks = "its import", 0
    for line in out.splitlines():
        kind, *values = json.loads(line)
        match kind:
            case "missing":
                return Report(library, missing=values[0])
            case "object":
                objects.append(values[0])
                at = f"{values[0]}, made"
            case "at":
                at = f"{objects[-1]}, way {values[0]}"
            case "difference":
                differences.append(Difference(*values))
            case "done":
                looks, ended = values[0], ""
    if ended:
        # From Python 3.14 on, the stack of C follows that of Python.
        errors = errors.partition("C stack trace")[0]
        last = " ".join(errors.strip().splitlines()[-8:])
        ended = f"its process {ended} at {at}: {last}"
    return Report(library, tuple(objects), looks, tuple(differences), "", ended)


def reports(libraries: Iterable[str]) -> Iterator[Report]:
    """Look at libraries, on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(run, libraries)


def main(names: list[str]) -> int:
    """Print what was found; return 1 if a process did not end well."""
    unknown = [name for name in names if name not in LIBRARIES]
    if unknown:
        print(f"no library {unknown[0]}; expected one of {' '.join(LIBRARIES)}")
        return 2
    ended = False
    for report in reports(names or LIBRARIES):
        print(report, flush=True)
        ended |= bool(report.ended)
    return int(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
