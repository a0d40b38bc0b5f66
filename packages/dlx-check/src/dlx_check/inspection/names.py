"""The names of the numbers that DLPack has for dtypes, devices and flags."""

from __future__ import annotations

from dlx_check.abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
)
from dlx_check.core import dlx

__all__ = ["device_name", "dtype_name", "flag_names"]

_FLAGS = {
    DLPACK_FLAG_BITMASK_READ_ONLY: "READ_ONLY",
    DLPACK_FLAG_BITMASK_IS_COPIED: "IS_COPIED",
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: "IS_SUBBYTE_TYPE_PADDED",
}


def dtype_name(dtype: tuple[int, int, int]) -> str:
    """Return the usual name, or the three numbers of a type that has none."""
    try:
        return str(dlx.DType(dtype))
    except (BufferError, TypeError, ValueError, OverflowError):
        return "dtype code {}, bits {}, lanes {}".format(*dtype)


def device_name(device: tuple[int, int]) -> str:
    """Return the usual name, or the two numbers of a device that has none."""
    try:
        return str(dlx.Device(*device))
    except (BufferError, TypeError, ValueError, OverflowError):
        return "device type {}, id {}".format(*device)


def flag_names(flags: int) -> str:
    """Return the names of the bits that are set, 0 for none."""
    names = [name for bit, name in _FLAGS.items() if flags & bit]
    if unknown := flags & ~sum(_FLAGS):
        names.append(f"{unknown:#x}")
    return " | ".join(names) or "0"
