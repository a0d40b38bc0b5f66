"""`Py_buffer` in ctypes, and exporters that fill one with any values, true or not."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    PYFUNCTYPE,
    Structure,
    addressof,
    c_char_p,
    c_float,
    c_int,
    c_ssize_t,
    c_uint,
    c_void_p,
    cast,
    memset,
    py_object,
    sizeof,
)
from typing import Any, ClassVar

from support.dlpack_abi import for_ever, give_reference


class PyBuffer(Structure):
    """`Py_buffer`."""

    _fields_: ClassVar = [
        *[(name, c_void_p) for name in ("buf", "obj")],
        *[(name, c_ssize_t) for name in ("len", "itemsize")],
        *[(name, c_int) for name in ("readonly", "ndim")],
        ("format", c_char_p),
        *[(name, POINTER(c_ssize_t)) for name in ("shape", "strides", "suboffsets")],
        ("internal", c_void_p),
    ]


class Slot(Structure):
    """`PyType_Slot`."""

    _fields_ = (("slot", c_int), ("pfunc", c_void_p))


class Spec(Structure):
    """`PyType_Spec`."""

    _fields_ = (
        ("name", c_char_p),
        *((name, c_int) for name in ("basicsize", "itemsize")),
        ("flags", c_uint),
        ("slots", POINTER(Slot)),
    )


BF_GETBUFFER, BF_RELEASEBUFFER = 1, 2
TPFLAGS_BASETYPE = 1 << 10


def _get(exporter: Any, view: Any, flags: int) -> int:
    exporter.exported += 1
    buffer = view[0]
    # CPython passes memory that it has not initialized, such as memoryview's own.
    memset(addressof(buffer), 0, sizeof(buffer))
    for name, value in exporter.fields.items():
        setattr(buffer, name, value)
    give_reference(exporter, addressof(buffer) + PyBuffer.obj.offset)
    return 0


def _release(exporter: Any, view: int) -> None:
    exporter.release()


def _new_type() -> Any:
    """Make a type with the two slots; Python classes support them from 3.12 on."""
    get = PYFUNCTYPE(c_int, py_object, POINTER(PyBuffer), c_int)(_get)
    release = PYFUNCTYPE(None, py_object, c_void_p)(_release)
    for_ever((get, release))
    slots = for_ever(
        (Slot * 3)(
            Slot(BF_GETBUFFER, cast(get, c_void_p)),
            Slot(BF_RELEASEBUFFER, cast(release, c_void_p)),
            Slot(0, None),
        )
    )
    spec = for_ever(Spec(b"fake_buffer.Base", 0, 0, TPFLAGS_BASETYPE, slots))
    new = PYFUNCTYPE(py_object, c_void_p)(("PyType_FromSpec", ctypes.pythonapi))
    return new(addressof(spec))


class Exporter(_new_type()):  # type: ignore[misc]
    """An object with a buffer: by default float32 0.0 to 5.0 in two rows of three.

    The fields are those of `Py_buffer`; dimensions are tuples of bytes.
    """

    def __init__(self, **fields: Any) -> None:
        """Report `fields` instead of the true values."""
        self.memory = (c_float * 6)(*range(6))
        usual = {
            "buf": addressof(self.memory),
            "len": 24,
            "itemsize": 4,
            "ndim": 2,
            "format": b"f",
            "shape": (2, 3),
            "strides": (12, 4),
        }
        self.fields = {
            name: (c_ssize_t * len(value))(*value) if type(value) is tuple else value
            for name, value in (usual | fields).items()
        }
        self.exported = 0
        self.released = 0

    def release(self) -> None:
        """Count the buffers that CPython releases."""
        self.released += 1
