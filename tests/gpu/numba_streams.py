"""Numba on its default stream, in ways that tell if dlx orders it.

The default stream is the legacy one unless Numba is configured otherwise before it is
imported, so a process of its own may run this.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import dlx

from gpu.clients import Numba
from gpu.machine import COUNT, NEW, OLD, Machine, Stream, machine, one_value

LEGACY, PER_THREAD = 1, 2


class DefaultStream(Stream):
    """A default stream of this thread, by its special handle."""

    def __init__(self, gpu: Machine, handle: int) -> None:
        """Keep the handle; there is nothing to create."""
        self.driver = gpu.driver
        self.handle = handle


class Named:
    """An array of Numba whose `__cuda_array_interface__` names another stream."""

    def __init__(self, array: Any, stream: int | None) -> None:
        """Keep the array, and the stream to name."""
        self._array = array
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the interface of the array with the stream."""
        interface: dict[str, Any] = self._array.__cuda_array_interface__
        return interface | {"stream": self._stream}


def late_write(
    gpu: Machine,
    default: int,
    stream: Any,
    shown: Callable[[Any], Any] = lambda array: array,
) -> tuple[float, bool]:
    """Read on S what Numba has yet to write; return the value, and if S waits."""
    numba, gated = Numba(), DefaultStream(gpu, default)
    array = numba.full(OLD)
    dlx.from_dlpack(shown(array), stream=gpu.s)
    gpu.synchronize()
    with gpu.gate.closed(gated):
        numba.write(array, NEW)
        tensor = dlx.from_dlpack(shown(array), stream=stream)
        read = gpu.read(tensor.data_ptr, gpu.s)
        waits = not gpu.s.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    return one_value(read), waits


def early_write(gpu: Machine, how: str) -> tuple[float, bool]:
    """Write with Numba what S has yet to read; return the value, and if Numba waits.

    `how` is what makes Numba wait: a "borrow", the "drop" of a tensor that was imported
    for S, or nothing ("none").
    """
    numba = Numba()
    array = numba.full(OLD)
    defaults = [DefaultStream(gpu, handle) for handle in (LEGACY, PER_THREAD)]
    gpu.synchronize()
    with gpu.gate.closed(gpu.s):
        if how == "borrow":
            with dlx.borrow(array, stream=gpu.s) as (view, _):
                read = gpu.read(view.data_ptr, gpu.s)
        else:
            keywords: Any = {"stream": gpu.s if how == "drop" else -1}
            tensor = dlx.from_dlpack(array, **keywords)
            read = gpu.read(tensor.data_ptr, gpu.s)
            del tensor
        numba.write(array, NEW)
        waits = not all(default.settles() for default in defaults)
        gpu.gate.open()
        gpu.s.synchronize()
    gpu.synchronize()
    return one_value(read), waits


def main(default: int) -> None:
    """Print both ways, with the order of dlx and without, as JSON."""
    gpu = machine()
    array = Numba().library.device_array(COUNT, "float32")
    print(
        json.dumps(
            {
                "late": late_write(gpu, default, gpu.s),
                "late, unordered": late_write(gpu, default, -1),
                "early": early_write(gpu, "borrow"),
                "early, drop": early_write(gpu, "drop"),
                "early, unordered": early_write(gpu, "none"),
                "says": str(array.__cuda_array_interface__["stream"]),
            }
        )
    )
