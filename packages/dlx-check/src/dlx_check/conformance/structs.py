"""Capsules and structures of `dlpack.h`, as the suite makes and reads them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_void_p, py_object
from typing import Any

from dlx_check.abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
    PyCapsule_GetDestructor,
    PyCapsule_GetName,
    PyCapsule_GetPointer,
    c_api,
    is_capsule,
)

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
    "is_capsule",
    "kept",
    "managed_at",
    "managed_in",
    "new_capsule",
    "object_at",
    "rename",
    "row_major",
    "take_reference",
]

READ_ONLY = DLPACK_FLAG_BITMASK_READ_ONLY
COPIED = DLPACK_FLAG_BITMASK_IS_COPIED
PADDED = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
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


_new = c_api("PyCapsule_New", py_object, c_void_p, c_void_p, c_void_p)
_set_name = c_api("PyCapsule_SetName", c_int, py_object, c_void_p)
_decref = c_api("Py_DecRef", None, py_object)

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
    if not is_capsule(capsule):
        raise TypeError(f"a {type(capsule).__name__} is not a capsule")
    return PyCapsule_GetName(capsule) or 0


def capsule_name(capsule: Any) -> str | None:
    """Return the name of a capsule, None for NULL; TypeError if it is not one."""
    name = c_char_p(capsule_name_address(capsule) or None).value
    return None if name is None else name.decode("ascii", "replace")


def rename(capsule: Any, name: str) -> None:
    """Rename a capsule, as a consumer does (R7)."""
    _set_name(capsule, _static(name))


def capsule_pointer(capsule: Any, name: str) -> int:
    """Return the address in a capsule; ValueError if the name differs."""
    address: int = PyCapsule_GetPointer(capsule, name.encode())
    return address


def capsule_destructor(capsule: Any) -> int:
    """Return the address of the destructor of a capsule, 0 for NULL."""
    return PyCapsule_GetDestructor(capsule) or 0


def managed_at(address: int, name: str) -> Any:
    """Return the struct behind a capsule of this name, used or not."""
    versioned = name.removeprefix(USED) == VERSIONED
    kind = DLManagedTensorVersioned if versioned else DLManagedTensor
    return kind.from_address(address)


def managed_in(capsule: Any, name: str) -> Any:
    """Return the struct in a capsule of this name, which still owns it."""
    return managed_at(capsule_pointer(capsule, name), name)


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


def api_pointer(holder: Any) -> int:
    """Return the address of the exchange table that a type names, 0 without one."""
    capsule = getattr(holder, "__dlpack_c_exchange_api__", None)
    if not is_capsule(capsule):
        return 0
    return capsule_pointer(capsule, TABLE) if capsule_name(capsule) == TABLE else 0
