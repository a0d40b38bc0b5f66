"""DLPack capsules read with ctypes: headers of exchange tables, flags of exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlx._structs import (
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLManagedTensorVersioned,
    DLPackExchangeAPIHeader,
    PyCapsule_GetPointer,
    PyCapsule_IsValid,
)

__all__ = ["Table", "exports_read_only", "find_table"]

_TABLE = b"dlpack_exchange_api"
_VERSIONED = b"dltensor_versioned"


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
        if capsule is not None and PyCapsule_IsValid(capsule, _TABLE):
            address = PyCapsule_GetPointer(capsule, _TABLE)
            version = DLPackExchangeAPIHeader.from_address(address).version
            return Table(hex(address), f"{version.major}.{version.minor}", attribute)
    return None


def exports_read_only(tensor: Any) -> bool:
    """Return whether `__dlpack__` exports the tensor with READ_ONLY."""
    try:
        capsule = tensor.__dlpack__(max_version=(1, 3))
    except TypeError:
        # A producer older than DLPack 1.0, which had no flags.
        return False
    if not PyCapsule_IsValid(capsule, _VERSIONED):
        return False
    head = DLManagedTensorVersioned.from_address(
        PyCapsule_GetPointer(capsule, _VERSIONED)
    )
    return bool(head.flags & DLPACK_FLAG_BITMASK_READ_ONLY)
