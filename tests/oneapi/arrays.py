"""Arrays of dpctl and dpnp, and work that takes its time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import pytest

ONEAPI, CPU = (14, 0), (1, 0)
USM = ["device", "shared", "host"]
HOST = USM[1:]
SIDE, PRODUCTS = 1024, 10
OLD, NEW = 0.0, float(SIDE)


def library(name: str) -> Any:
    """Import a library; if missing, skip the file, or fail in CI."""
    if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
        return import_module(name)
    reason = f"{name} is not installed: `tests/tasks.py oneapi` installs it"
    return pytest.importorskip(name, reason=reason)


dpctl = library("dpctl")
dpnp = library("dpnp")
usm = library("dpnp.tensor")
memory = library("dpctl.memory")

MAKERS: dict[str, Callable[..., Any]] = {"dpctl": usm.arange, "dpnp": dpnp.arange}
"""dpctl's arrays have been a part of dpnp since its version 0.20."""

by_library = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
by_memory = pytest.mark.parametrize("usm_type", USM)
by_host_memory = pytest.mark.parametrize("usm_type", HOST)


def array(usm_type: str, size: int = 6) -> Any:
    """Make 0.0, 1.0 and so on."""
    return dpnp.arange(size, dtype="float32", usm_type=usm_type)


def address_of(x: Any) -> int:
    """Where the library says that the first element is."""
    address: int = x.__sycl_usm_array_interface__["data"][0]
    return address


def new_queue() -> Any:
    """Make a queue that runs its work in order.

    In others a barrier of dpctl (0.22, on OpenCL) holds up no `memcpy` after it.
    """
    return dpctl.SyclQueue(property="in_order")


def is_at_work(queue: Any) -> bool:
    """Whether a queue has work left."""
    status = queue.submit_barrier().execution_status
    return bool(status != dpctl.event_status_type.complete)


class Late:
    """A matrix of `OLD`, and kernels of some tenths of a second that write `NEW`."""

    def __init__(self, usm_type: str) -> None:
        """Allocate all that the kernels need."""
        shape = (SIDE, SIDE)
        self.x = dpnp.full(shape, OLD, dtype="float32", usm_type=usm_type)
        self.queue = self.x.sycl_queue
        # To ask for it waits for the queue.
        self.memory = memory.as_usm_memory(self.x)
        self._ones = dpnp.ones(shape, dtype="float32")
        self._product = dpnp.empty(shape, dtype="float32")
        self.queue.wait()

    @contextmanager
    def written(self) -> Iterator[Any]:
        """Queue the kernels, and give the matrix, to which they have yet to write."""
        for _ in range(PRODUCTS):
            dpnp.matmul(self._ones, self._ones, out=self._product)
        # Only of these does the submission return at once: others wait for a product.
        dpnp.matmul(self._ones, self._ones, out=self.x)
        assert is_at_work(self.queue), "the kernels were too short to show anything"
        try:
            yield self.x
        finally:
            self.queue.wait()


def copy_on(queue: Any, source: Any) -> Any:
    """Copy memory on a queue, in the order of that queue alone."""
    target = memory.MemoryUSMHost(source.nbytes, queue=queue)
    queue.memcpy_async(target, source, source.nbytes)
    queue.wait()
    return np.frombuffer(target, "float32").copy()
