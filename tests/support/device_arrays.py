"""NumPy arrays on the simulated device: the same layout in the driver's memory."""

from __future__ import annotations

import ctypes
from typing import Any

import dlx
import numpy as np

from support.simulated_driver import Simulation

WORK = {
    "cuMemAllocAsync": "allocate",
    "cuMemFreeAsync": "free",
    "cuMemcpyAsync": "copy",
    "cuMemcpy2DAsync_v2": "copy rows",
    "cuMemcpyPeerAsync": "copy between devices",
    "cuEventRecord": "record",
    "cuStreamWaitEvent": "wait",
    "cuStreamSynchronize": "synchronize",
}
"""Calls that queue work on a stream, or wait for it."""


def work(sim: Simulation) -> list[str]:
    """Return the work that dlx has queued since the journal was cleared."""
    return [WORK[name] for name in sim.called() if name in WORK]


def on_device(sim: Simulation, array: np.ndarray[Any, Any], **keywords: Any) -> Any:
    """Return a tensor laid out like `array`, over a device copy of its whole base."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    memory = sim.allocate(max(whole.nbytes, 1))
    ctypes.memmove(memory.address, whole.ctypes.data, whole.nbytes)
    sim.advance()
    offset = array.ctypes.data - whole.ctypes.data
    return dlx.from_pointer(
        memory.address + offset if array.size else 0,
        array.shape,
        str(array.dtype),
        strides=[stride // array.itemsize for stride in array.strides],
        device="cuda:0",
        **keywords,
    )


def values(sim: Simulation, tensor: dlx.Tensor) -> Any:
    """Return the elements, fetched by dlx and read by the host."""
    fetched = dlx.from_dlpack(tensor, device="cpu")
    if fetched.size:
        sim.host_read(fetched.data_ptr, fetched.nbytes)
    return fetched.numpy()
