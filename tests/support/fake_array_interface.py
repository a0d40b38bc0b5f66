"""Arrays that have only NumPy's array interface, as a dict or as a C struct."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    addressof,
    c_char,
    c_int,
    c_ssize_t,
    c_void_p,
)
from typing import Any

import numpy as np

from support.dlpack_abi import for_ever, new_capsule


class ByDict:
    """An array that has only `__array_interface__`, partly changed."""

    def __init__(self, array: Any, **changed: Any) -> None:
        """Describe `array`; entries changed to ... are left out."""
        self.array = array
        interface = array.__array_interface__ | changed
        self.interface = {
            key: value for key, value in interface.items() if value is not ...
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Return the dict."""
        return self.interface


class ByStruct:
    """An array that has only `__array_struct__`."""

    def __init__(self, array: Any) -> None:
        """Describe `array`."""
        self.array = array

    @property
    def __array_struct__(self) -> Any:
        """Return its capsule."""
        return self.array.__array_struct__


class PyArrayInterface(ctypes.Structure):
    """`PyArrayInterface`."""

    _fields_ = (
        *((name, c_int) for name in ("two", "nd")),
        ("typekind", c_char),
        *((name, c_int) for name in ("itemsize", "flags")),
        *((name, POINTER(c_ssize_t)) for name in ("shape", "strides")),
        *((name, c_void_p) for name in ("data", "descr")),
    )


ALIGNED, NOTSWAPPED, WRITEABLE = 0x100, 0x200, 0x400
MEMORY = for_ever(np.arange(6, dtype="f4"))


class Struct:
    """An object with its own struct: by default `MEMORY` in two rows of three."""

    def __init__(self, *, name: bytes | None = None, **fields: Any) -> None:
        """Set `fields`; dimensions are tuples of bytes, None for NULL."""
        usual = {
            "two": 2,
            "nd": 2,
            "typekind": b"f",
            "itemsize": 4,
            "flags": ALIGNED | NOTSWAPPED | WRITEABLE,
            "shape": (2, 3),
            "strides": (12, 4),
            "data": MEMORY.ctypes.data,
        }
        self.struct = PyArrayInterface(
            **{
                key: (c_ssize_t * len(value))(*value) if type(value) is tuple else value
                for key, value in (usual | fields).items()
                if value is not None
            }
        )
        self.name = name

    @property
    def __array_struct__(self) -> Any:
        """Return a capsule around the struct."""
        if self.name is None:
            return nameless_capsule(addressof(self.struct), None, None)
        return new_capsule(addressof(self.struct), self.name)


nameless_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_void_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
