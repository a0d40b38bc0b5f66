"""`dlpack.h` 1.3 in ctypes under its C names, and the capsule functions of CPython.

Function pointers are addresses here, because the suite passes them on and compares
them with NULL more often than it calls them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
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
    "COPIED",
    "DTYPES",
    "PADDED",
    "READ_ONLY",
    "UNVERSIONED",
    "USED",
    "VERSIONED",
    "DLManagedTensor",
    "DLManagedTensorVersioned",
    "DLPackExchangeAPI",
    "DLTensor",
    "api_pointer",
    "capsule_destructor",
    "capsule_name",
    "capsule_name_address",
    "capsule_pointer",
    "kept",
    "managed_at",
    "new_capsule",
    "object_at",
    "rename",
    "row_major",
    "take_reference",
]

READ_ONLY, COPIED, PADDED = 1, 2, 4
VERSIONED, UNVERSIONED = "dltensor_versioned", "dltensor"
USED = "used_"
TABLE = "dlpack_exchange_api"

DTYPES: dict[str, tuple[int, int, int]] = {
    **{f"int{bits}": (0, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits, 1) for bits in (16, 32, 64)},
    "bfloat16": (4, 16, 1),
    "complex64": (5, 64, 1),
    "complex128": (5, 128, 1),
    "bool": (6, 8, 1),
    "float8_e3m4": (7, 8, 1),
    "float8_e4m3": (8, 8, 1),
    "float8_e4m3b11fnuz": (9, 8, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e4m3fnuz": (11, 8, 1),
    "float8_e5m2": (12, 8, 1),
    "float8_e5m2fnuz": (13, 8, 1),
    "float8_e8m0fnu": (14, 8, 1),
    "float6_e2m3fn": (15, 6, 1),
    "float6_e3m2fn": (16, 6, 1),
    "float4_e2m1fn": (17, 4, 1),
}
"""Code, bits and lanes of each dtype."""


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


class DLPackExchangeAPI(Structure):
    """`DLPackExchangeAPI`, its header in line."""

    ENTRIES: ClassVar[tuple[str, ...]] = (
        "managed_tensor_allocator",
        "managed_tensor_from_py_object_no_sync",
        "managed_tensor_to_py_object_no_sync",
        "dltensor_from_py_object_no_sync",
        "current_work_stream",
    )
    _fields_ = (
        ("version", DLPackVersion),
        ("prev_api", c_void_p),
        *((name, c_void_p) for name in ENTRIES),
    )


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """Bind a C API function privately: `ctypes.pythonapi.f` is shared process-wide."""
    return PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", py_object, c_void_p, c_void_p, c_void_p)
_name = _python("PyCapsule_GetName", c_void_p, py_object)
_set_name = _python("PyCapsule_SetName", c_int, py_object, c_void_p)
_pointer = _python("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_destructor = _python("PyCapsule_GetDestructor", c_void_p, py_object)
_incref = _python("Py_IncRef", None, py_object)
_decref = _python("Py_DecRef", None, py_object)

_kept: list[Any] = []
_names: dict[str, ctypes.Array[ctypes.c_char]] = {}


def kept(thing: Any) -> Any:
    """Keep `thing` until the process ends, because C code knows its address."""
    _kept.append(thing)
    return thing


def _static(name: str) -> int:
    made = _names.setdefault(name, ctypes.create_string_buffer(name.encode()))
    return ctypes.addressof(made)


def new_capsule(pointer: int, name: str, destructor: int | None = None) -> Any:
    """Make a capsule; `destructor` is the address of a C function."""
    return _new(pointer, _static(name), destructor)


def capsule_name_address(capsule: Any) -> int:
    """Return where the name of a capsule is (R2); TypeError if it is not one."""
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"a {type(capsule).__name__} is not a capsule")
    return _name(capsule) or 0


def capsule_name(capsule: Any) -> str | None:
    """Return the name of a capsule, None for NULL; TypeError if it is not one."""
    name = c_char_p(capsule_name_address(capsule) or None).value
    return None if name is None else name.decode("ascii", "replace")


def rename(capsule: Any, name: str) -> None:
    """Rename a capsule, as a consumer does (R7)."""
    _set_name(capsule, _static(name))


def capsule_pointer(capsule: Any, name: str) -> int:
    """Return the address in a capsule; ValueError if the name differs."""
    address: int = _pointer(capsule, name.encode())
    return address


def capsule_destructor(capsule: Any) -> int:
    """Return the address of the destructor of a capsule, 0 for NULL."""
    return _destructor(capsule) or 0


def managed_at(address: int, name: str) -> Any:
    """Return the struct behind a capsule of this name, used or not."""
    versioned = name.removeprefix(USED) == VERSIONED
    kind = DLManagedTensorVersioned if versioned else DLManagedTensor
    return kind.from_address(address)


def object_at(address: int) -> Any:
    """Return the Python object at an address."""
    return ctypes.cast(address, py_object).value


def take_reference(address: int) -> Any:
    """Take over the new reference to the object at an address."""
    taken = object_at(address)
    _decref(taken)
    return taken


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return compact row-major strides in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def give_reference(given: Any, out: int) -> None:
    """Write a new reference to the address `out`, as a table function does."""
    _incref(given)
    c_void_p.from_address(out).value = id(given)


def api_pointer(holder: Any) -> int:
    """Return the address of the exchange table that a type names, 0 without one."""
    capsule = getattr(holder, "__dlpack_c_exchange_api__", None)
    if capsule is None or type(capsule).__name__ != "PyCapsule":
        return 0
    return capsule_pointer(capsule, TABLE) if capsule_name(capsule) == TABLE else 0
