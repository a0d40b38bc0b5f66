"""Static types that export what an object of theirs does: `static_types.c`."""

from __future__ import annotations

import ctypes
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.compiled import compiled

HEADERS = sysconfig.get_path("include")
needs_headers = pytest.mark.skipif(
    not Path(HEADERS, "Python.h").exists(), reason="no headers of Python"
)


@cache
def static_types() -> tuple[type[Any], type[Any], type[Any]]:
    """Return `Plain`, `Asking` and `Open`; each takes the object."""
    types = compiled("static_types.c", HEADERS).static_types
    types.restype = ctypes.py_object
    made: tuple[type[Any], type[Any], type[Any]] = types()
    return made
