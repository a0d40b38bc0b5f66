"""Functions that dlx wraps, as the steps of several programs call them."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np


@dlx.bridge(np.ndarray)
def doubled(array: Any, *, out: Any = None) -> Any:
    """Compute with arrays."""
    return np.multiply(array, 2, out=out)


@dlx.launcher
def launch(a: int, b: int) -> int:
    """Take two addresses."""
    return a + b


@dlx.launcher(give="pointer")
def launch_pointers(a: Any, b: Any) -> int:
    """Take two pointers."""
    return int(a.data_ptr() + b.data_ptr())
