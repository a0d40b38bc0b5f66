"""What a driver's library has, without a call that needs a device.

python -m drivers.symbols LIBRARY cuda|hip
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from drivers.real import table_of, version_asked

LEGACY_STREAM = 1


def address_of(library: ctypes.CDLL, symbol: str) -> int | None:
    """Where a symbol is."""
    function = getattr(library, symbol, None)
    return ctypes.cast(function, c_void_p).value if function else None


def by_version(get: Any, name: str) -> int | None:
    """Where `cuGetProcAddress_v2` says that a function is."""
    address, status = c_void_p(), c_int()
    asked = (version_asked(), c_uint64(LEGACY_STREAM))
    code = get(name.encode(), byref(address), *asked, byref(status))
    return address.value if code == 0 else None


def look_up(library: ctypes.CDLL, kind: str) -> dict[str, Any]:
    """Tell what is missing, and what has another address by version than by symbol."""
    table = table_of(kind)
    symbols = {name: address_of(library, symbol) for name, symbol in table.items()}
    version = c_int()
    ask = {"cuda": "cuDriverGetVersion", "hip": "hipRuntimeGetVersion"}[kind]
    getattr(library, ask)(byref(version))
    get = getattr(library, "cuGetProcAddress_v2", None)
    return {
        "version": version.value,
        "missing": [table[name] for name in table if not symbols[name]],
        "has versions": get is not None,
        "others": [
            name for name in table if get and by_version(get, name) != symbols[name]
        ],
    }


if __name__ == "__main__":
    print(json.dumps(look_up(ctypes.CDLL(sys.argv[1]), sys.argv[2])))
