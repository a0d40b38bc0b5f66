"""What JAX itself says of memory that must not be written: releases differ."""

from __future__ import annotations

from typing import Any

from support.dlpack_abi import DLPACK_FLAG_BITMASK_READ_ONLY, exported
from support.optional_libraries import requires


def says_read_only(x: Any) -> bool:
    """Whether JAX exports an array as READ_ONLY; old releases have no flags."""
    flags = getattr(exported(x), "flags", 0)
    return bool(flags & DLPACK_FLAG_BITMASK_READ_ONLY)


def takes_read_only(x: Any) -> bool:
    """Whether JAX imports such memory; old releases ask for a capsule without flags."""
    try:
        requires("jax.dlpack").from_dlpack(x)
    except BufferError:
        return False
    return True
