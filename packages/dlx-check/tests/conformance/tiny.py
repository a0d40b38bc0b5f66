"""A library that nobody has checked before, with three faults."""

from __future__ import annotations

from typing import Any

import numpy as np


class Array:
    """A NumPy array."""

    def __init__(self, data: Any) -> None:
        """Keep the array."""
        self.data = data

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return 1, 0

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """Export it; copy= is dropped, and streams are ignored."""
        return self.data.__dlpack__(max_version=max_version, dl_device=dl_device)


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Array:
    """Import a tensor, and forget its last element."""
    data = np.array(np.from_dlpack(x, copy=copy))
    if data.size:
        data.reshape(-1)[-1] = 0
    return Array(data)


def target() -> Any:
    """Describe the library."""
    from dlx_check import Target

    return Target(
        name="tiny",
        imports="import tiny",
        make="lambda a: tiny.Array(np.array(a))",
        take="tiny.from_dlpack",
        show="lambda x: x.data.copy()",
        address="lambda x: x.data.ctypes.data",
        type="tiny.Array",
    )
