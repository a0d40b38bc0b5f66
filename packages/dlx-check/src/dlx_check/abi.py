"""`dlpack.h` 1.3 in ctypes under its C names, and the capsule functions of CPython.

Function pointers are addresses here: they are shown, passed on and compared with NULL
more often than they are called.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)
from typing import Any, ClassVar

__all__ = [
    "DLPACK_FLAG_BITMASK_IS_COPIED",
    "DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED",
    "DLPACK_FLAG_BITMASK_READ_ONLY",
    "DLPACK_MAJOR_VERSION",
    "DLPACK_MINOR_VERSION",
    "DLDataType",
    "DLDevice",
    "DLManagedTensor",
    "DLManagedTensorVersioned",
    "DLPackExchangeAPI",
    "DLPackExchangeAPIHeader",
    "DLPackVersion",
    "DLTensor",
    "Deleter",
    "PyCapsule_GetDestructor",
    "PyCapsule_GetName",
    "PyCapsule_GetPointer",
    "PyCapsule_IsValid",
    "PyObject_CheckBuffer",
    "c_api",
    "is_capsule",
]

DLPACK_MAJOR_VERSION = 1
DLPACK_MINOR_VERSION = 3
DLPACK_FLAG_BITMASK_READ_ONLY = 1
DLPACK_FLAG_BITMASK_IS_COPIED = 2
DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED = 4

# Called with the GIL held (R146); ctypes raises the exceptions that they set.
Deleter = PYFUNCTYPE(None, c_void_p)


class DLPackVersion(Structure):
    """`DLPackVersion`."""

    _fields_ = (("major", c_uint32), ("minor", c_uint32))


class DLDevice(Structure):
    """`DLDevice`."""

    _fields_ = (("device_type", c_int32), ("device_id", c_int32))


class DLDataType(Structure):
    """`DLDataType`."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class DLTensor(Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class DLManagedTensor(Structure):
    """`DLManagedTensor`, behind a capsule named `dltensor`."""

    _fields_ = (
        ("dl_tensor", DLTensor),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
    )


class DLManagedTensorVersioned(Structure):
    """`DLManagedTensorVersioned`, behind a capsule named `dltensor_versioned`."""

    _fields_ = (
        ("version", DLPackVersion),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    )


class DLPackExchangeAPIHeader(Structure):
    """`DLPackExchangeAPIHeader`."""

    _fields_ = (("version", DLPackVersion), ("prev_api", c_void_p))


class DLPackExchangeAPI(Structure):
    """`DLPackExchangeAPI`, with the fields of its header as its own, too."""

    ENTRIES: ClassVar[tuple[str, ...]] = (
        "managed_tensor_allocator",
        "managed_tensor_from_py_object_no_sync",
        "managed_tensor_to_py_object_no_sync",
        "dltensor_from_py_object_no_sync",
        "current_work_stream",
    )
    _anonymous_ = ("header",)
    _fields_ = (
        ("header", DLPackExchangeAPIHeader),
        *((name, c_void_p) for name in ENTRIES),
    )


def c_api(name: str, result: Any, *arguments: Any) -> Any:
    """Bind a C API function privately: `ctypes.pythonapi.f` is shared process-wide."""
    return PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


PyCapsule_GetName = c_api("PyCapsule_GetName", c_void_p, py_object)
PyCapsule_GetPointer = c_api("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
PyCapsule_IsValid = c_api("PyCapsule_IsValid", c_int, py_object, c_char_p)
PyCapsule_GetDestructor = c_api("PyCapsule_GetDestructor", c_void_p, py_object)
PyObject_CheckBuffer = c_api("PyObject_CheckBuffer", c_int, py_object)

_CAPSULE = type(
    c_api("PyCapsule_New", py_object, c_void_p, c_void_p, c_void_p)(1, None, None)
)


def is_capsule(x: object) -> bool:
    """Return whether ``x`` is a capsule of any name."""
    return type(x) is _CAPSULE
