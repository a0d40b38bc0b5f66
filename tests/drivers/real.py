"""A driver that `fetch.py` has unpacked, and what dlx looks up in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from drivers.fetch import ABSENT, CUDA, DRIVERS, FOLDER, library_in

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src/driver"
VARIABLES = {"cuda": "DLX_LIBCUDA", "hip": "DLX_LIBAMDHIP"}
TOO_OLD = ("cuda-460", "hip-5.2")
"""What dlx does not accept: before CUDA 11.3 and ROCm 5.3."""
ACCEPTED = [name for name in DRIVERS if name not in TOO_OLD]


def kind_of(name: str) -> str:
    """Whether it is "cuda" or "hip"."""
    return "cuda" if name in CUDA else "hip"


def table_of(kind: str) -> dict[str, str]:
    """Read the functions that dlx looks up, and their symbols, from its source."""
    text = (SOURCE / "functions.rs").read_text()
    table = re.search(r"^functions! \{$(.*?)^\}$", text, re.M | re.S)
    assert table is not None
    pairs = re.findall(r'"(\w*)",\s+"(\w*)";', table[1])
    symbols = [pair[["cuda", "hip"].index(kind)] for pair in pairs]
    return {symbol.removesuffix("_v2"): symbol for symbol in symbols if symbol}


class Driver:
    """One of the drivers, or a skipped test with the reason why it is not there."""

    def __init__(self, name: str) -> None:
        """Find its library."""
        self.name, self.kind, self.folder = name, kind_of(name), FOLDER / name
        if not self.folder.exists():
            absent = json.loads(ABSENT.read_text()) if ABSENT.exists() else {}
            reason = absent.get(name, "`tests/tasks.py drivers` fetches it")
            pytest.skip(f"no driver {name}: {reason}")
        self.file = library_in(self.folder, DRIVERS[name].file)

    def command(self) -> list[str | Path]:
        """Give the Python to run: with HIP, on the C library that HIP was built for."""
        if self.kind == "cuda":
            return [sys.executable]
        loader = next(self.folder.glob("**/ld-linux*.so.*"))
        folders = {str(file.parent) for file in self.folder.glob("**/lib*.so.*")}
        return [loader, "--library-path", os.pathsep.join(folders), sys.executable]

    def run(self, code: str) -> str:
        """Output of a Python of its own, in which this is the driver of dlx."""
        paths = filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        for kind, variable in VARIABLES.items():
            environment[variable] = str(self.file) if kind == self.kind else "/nowhere"
        command = [*self.command(), "-W", "error", "-c", dedent(code)]
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout.strip()
