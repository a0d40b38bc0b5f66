"""Arrays that export simulated device memory by `__cuda_array_interface__`."""

from __future__ import annotations

from typing import Any

from support.cuda_producers import DLPackArray
from support.simulated_objects import Memory, Stream


class Shown:
    """Two rows of three float32 by default; an entry changed to ... is left out."""

    def __init__(
        self, memory: Memory, p: Stream | None = None, /, **changed: Any
    ) -> None:
        """Name stream `p` as the one to wait for."""
        interface = {
            "version": 3,
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (memory.address, False),
            "stream": None if p is None else p.handle,
        } | changed
        self.interface = {k: v for k, v in interface.items() if v is not ...}
        self.reads = 0
        """How often the interface was read."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the dict."""
        self.reads += 1
        return self.interface


class InterfaceDLPackArray(DLPackArray):
    """An array like CuPy's: `__dlpack__`, and an interface that names the stream."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, with the framework's current stream."""
        return {
            "version": 3,
            "shape": tuple(self.shape or ()),
            "typestr": "<f4",
            "data": (self.data, False),
            "stream": self.framework.current_stream(self.device[1]).handle,
        }
