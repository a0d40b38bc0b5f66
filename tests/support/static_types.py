"""Static types that export what an object of theirs does: `static_types.c`."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any


@cache
def static_types() -> tuple[type[Any], type[Any], type[Any]]:
    """Return `Plain`, `Asking` and `Open`; each takes the object."""
    source = Path(__file__).with_name("static_types.c")
    flags = ["-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "static_types.so")
        subprocess.run(["cc", *flags, "-o", library, source], check=True)
        types = ctypes.PyDLL(str(library)).static_types
    types.restype = ctypes.py_object
    made: tuple[type[Any], type[Any], type[Any]] = types()
    return made
