"""NumPy arrays on the simulated device: the same layout, in memory of the driver."""

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
    "cuEventRecord": "record",
    "cuStreamWaitEvent": "wait",
    "cuStreamSynchronize": "synchronize",
}
"""Calls that give a stream work, or wait for it."""


def work(sim: Simulation) -> list[str]:
    """What dlx has given to streams since the journal was cleared."""
    return [WORK[name] for name in sim.called() if name in WORK]


def on_device(sim: Simulation, array: np.ndarray[Any, Any], **keywords: Any) -> Any:
    """A tensor like a view of a whole array, over a device's copy of that whole."""
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
    """The elements, fetched by dlx, and looked at by the host."""
    fetched = dlx.from_dlpack(tensor, device="cpu")
    if fetched.size:
        sim.host_read(fetched.data_ptr, fetched.nbytes)
    return fetched.numpy()
