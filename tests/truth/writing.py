"""Writes to a result, and computes with it."""

from __future__ import annotations

import ctypes
from typing import Any

import dlx
import numpy as np

from .said import BUFFERS, Said
from .says import package_of, says


def writable_address(y: Any) -> int:
    """Return the address of the first element if the library lets users write, or 0."""
    kind = package_of(y)
    if type(y).__name__ == "ReadOnlyTensorWrapper":  # torch's, which has no address
        return 0
    if isinstance(y, np.ndarray):
        return int(y.ctypes.data) if y.flags.writeable else 0
    if isinstance(y, dlx.Tensor):
        return 0 if y.readonly else y.data_ptr
    if isinstance(y, BUFFERS):
        view = memoryview(y)
        if view.readonly:
            return 0
        if view.c_contiguous and view.nbytes:
            return ctypes.addressof(ctypes.c_char.from_buffer(y))
        try:
            return int(np.asarray(view).ctypes.data)
        except ValueError:  # NumPy has no dtype for pointers
            return 0
    if kind in ("torch", "paddle", "tvm_ffi"):
        return int(y.data_ptr())
    if kind == "array_api_strict":
        return writable_address(y._array)
    return 0


def flip(address: int) -> None:
    """Change the number at an address; a second call restores it."""
    byte = ctypes.c_ubyte.from_address(address)
    byte.value ^= 1


ROUNDED = ("float8_e8m0fnu", "float8_e8m0", "float6_e2m3fn", "float4_e2m1fn")
"""Dtypes in which libraries round a sum differently."""


COMPILED = ((3,), (2, 3), (), (0,))
"""The only shapes for which JAX compiles a sum, which takes as long as 100 programs."""


def doubled(y: Any) -> Said | None:
    """Return ``y + y`` as its library computes it; None if it cannot."""
    if package_of(y).startswith("jax") and tuple(y.shape) not in COMPILED:
        return None
    try:
        if isinstance(y, dlx.Tensor):
            y = np.from_dlpack(y)
        if isinstance(y, BUFFERS):
            y = np.asarray(memoryview(y))
        return says(y + y)
    except Exception:
        # A library need not be able to add; it must not crash.
        return None


def computes_wrongly(y: Any, truth: Said) -> str:
    """Return what is wrong with ``y + y``, or ""."""
    with np.errstate(all="ignore"):
        found = doubled(y)
        if found is None or found.dtype != truth.dtype or truth.dtype in ROUNDED:
            return ""
        try:
            numbers = truth.numbers()
            expected = (numbers + numbers).astype(numbers.dtype)
            given = found.numbers()
            if given.dtype.kind in "fcVW":
                # Some libraries flush denormal numbers to 0.
                is_complex = given.dtype.name.startswith("complex")
                wide = np.complex128 if is_complex else np.float64
                given, expected = given.astype(wide), expected.astype(wide)
                close = np.isclose(given, expected) | ~np.isfinite(expected)
            else:
                close = given == expected
        except TypeError:
            return ""
    if found.shape == truth.shape and bool(np.all(close)):
        return ""
    return f"its sum with itself is {found}, of {truth}"
