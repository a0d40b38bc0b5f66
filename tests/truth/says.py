"""Asks the library of any object what it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np

from . import said_libraries
from .said import BUFFERS, Said, frozen_copy, of_buffer, of_dlx, of_numpy
from .said_torch import of_torch
from .vetoes import is_vetoed

READERS: dict[str, Callable[[Any], Said | None]] = {
    "torch": of_torch,
    "jax": said_libraries.of_jax,
    "jaxlib": said_libraries.of_jax,
    "tensorflow": said_libraries.of_tensorflow,
    "mlx": said_libraries.of_mlx,
    "paddle": said_libraries.of_paddle,
    "pyarrow": said_libraries.of_arrow,
    "pandas": said_libraries.of_pandas,
    "tvm_ffi": said_libraries.of_tvm,
}


def package_of(x: Any) -> str:
    """Return the name of an object's library, or else of its package."""
    # Some classes of ctypes have no module.
    modules = [getattr(kind, "__module__", "") for kind in type(x).__mro__]
    names = [str(module).partition(".")[0] for module in modules]
    return next((name for name in names if name in READERS), names[0])


def says(x: Any) -> Said | None:
    """Return what the library says of ``x``; None if DLPack cannot describe it."""
    if isinstance(x, dlx.Tensor):
        return of_dlx(x)
    if is_vetoed(x):
        return None
    if isinstance(x, np.ndarray):
        return of_numpy(x)
    if isinstance(x, np.generic) and not isinstance(x, BUFFERS):
        # A new read-only array: a scalar is immutable.
        return of_numpy(frozen_copy(x))
    if isinstance(x, BUFFERS):
        return of_buffer(x)
    if (inside := getattr(x, "__truth__", None)) is not None:
        found: Said | None = inside()
        return found
    name = package_of(x)
    if name == "array_api_strict":
        return of_numpy(x._array)
    return READERS.get(name, of_buffer)(x)
