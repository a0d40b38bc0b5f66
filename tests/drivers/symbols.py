"""What a driver's library has, without a call that needs a device.

python -m drivers.symbols LIBRARY cuda|hip
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_int
from typing import Any

from drivers.real import table_of


def look_up(library: ctypes.CDLL, kind: str) -> dict[str, Any]:
    """Tell what version it has, and which symbols are missing."""
    version = c_int()
    ask = {"cuda": "cuDriverGetVersion", "hip": "hipRuntimeGetVersion"}[kind]
    getattr(library, ask)(byref(version))
    symbols = table_of(kind).values()
    return {
        "version": version.value,
        "missing": [symbol for symbol in symbols if not hasattr(library, symbol)],
    }


if __name__ == "__main__":
    print(json.dumps(look_up(ctypes.CDLL(sys.argv[1]), sys.argv[2])))
