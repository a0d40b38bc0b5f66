"""An object with `__cuda_array_interface__` over memory of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu.machine import COUNT


class Shown:
    """`COUNT` float32, and the stream that `names` gives at each reading."""

    def __init__(
        self, address: int, names: Callable[[], int] | None, version: int = 3
    ) -> None:
        """Keep what is shown; without `names` there is no entry for a stream."""
        self.address, self.names, self.version = address, names, version

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the dict."""
        interface = {
            "version": self.version,
            "shape": (COUNT,),
            "typestr": "<f4",
            "data": (self.address, False),
        }
        return interface if self.names is None else interface | {"stream": self.names()}
