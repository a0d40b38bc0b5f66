"""DLPack capsules read with ctypes: headers of exchange tables, flags of exports."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

__all__ = ["Table", "exports_read_only", "find_table"]

_TABLE = b"dlpack_exchange_api"
_VERSIONED = b"dltensor_versioned"
_READ_ONLY = 1

_api = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class _TableHeader(ctypes.Structure):
    _fields_ = (("version", _Version), ("prev_api", ctypes.c_void_p))


class _ManagedTensorHead(ctypes.Structure):
    _fields_ = (
        ("version", _Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Table:
    """An exchange table as its own header describes it."""

    address: str
    version: str
    attribute: str


def find_table(tensor_type: type) -> Table | None:
    """Return the exchange table that a tensor type publishes, if it publishes one."""
    # The second name is from drafts before DLPack 1.3.
    for attribute in ("__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"):
        capsule = getattr(tensor_type, attribute, None)
        if capsule is not None and _is_valid(capsule, _TABLE):
            address = _pointer(capsule, _TABLE)
            version = _TableHeader.from_address(address).version
            return Table(hex(address), f"{version.major}.{version.minor}", attribute)
    return None


def exports_read_only(tensor: Any) -> bool:
    """Return whether `__dlpack__` exports the tensor with READ_ONLY."""
    try:
        capsule = tensor.__dlpack__(max_version=(1, 3))
    except TypeError:
        # A producer older than DLPack 1.0, which had no flags.
        return False
    if not _is_valid(capsule, _VERSIONED):
        return False
    head = _ManagedTensorHead.from_address(_pointer(capsule, _VERSIONED))
    return bool(head.flags & _READ_ONLY)
