"""The C sources of this folder as libraries."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path


@cache
def compiled(name: str, include: Path | str) -> ctypes.PyDLL:
    """Return a source as a library, compiled once per process."""
    source = Path(__file__).with_name(name)
    flags = ["-shared", "-fPIC", "-O1", f"-I{include}"]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, name).with_suffix(".so")
        subprocess.run(["cc", *flags, "-o", library, source], check=True)
        return ctypes.PyDLL(str(library))
