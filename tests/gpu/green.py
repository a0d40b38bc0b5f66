"""A green context, its streams, and kernels that are launched in any context."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import pytest

from gpu.claims_contexts import new_green
from gpu.kernels import PTX
from gpu.machine import OLD, Machine, Stream

LEGACY, PER_THREAD = 1, 2
WAYS = ("cuGreenCtxStreamCreate", "cuStreamCreate")
"""How a stream of a green context is made: by its name, or while it is current."""


class GreenStream(Stream):
    """A stream of a green context, which is current wherever the test uses it."""

    def __init__(self, green: Green, handle: int) -> None:
        """Take the handle of one that is there."""
        self.driver, self.green, self.handle = green.driver, green, handle

    def is_done(self) -> bool:
        """Whether all its work is done."""
        with self.green.current():
            return super().is_done()

    def synchronize(self) -> None:
        """Block until all its work is done."""
        with self.green.current():
            super().synchronize()


class Green:
    """A green context of all of the device, with two streams of each kind."""

    def __init__(self, gpu: Machine) -> None:
        """Make it; `DriverError` if the driver cannot."""
        self.driver = gpu.driver
        self.handle, self.context = new_green(gpu.driver)
        by_name = [gpu.driver.new_green_stream(self.handle) for _ in range(2)]
        with self.current():
            by_context = [gpu.driver.new_stream() for _ in range(2)]
        self.streams = {
            way: [GreenStream(self, handle) for handle in handles]
            for way, handles in zip(WAYS, (by_name, by_context), strict=True)
        }
        self.default = GreenStream(self, LEGACY)
        self.handles = {*by_name, *by_context}

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it current in this thread, within the block."""
        self.driver.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.driver.get("cuCtxPopCurrent_v2")


@cache
def green_of(gpu: Machine) -> Green:
    """Return the green context, which is made once per process."""
    return Green(gpu)


@cache
def kernels_of(gpu: Machine) -> dict[str, int]:
    """Return the machine's kernels for every context: that of the stream (`CUkernel`).

    A function of a module is one of the context that the module was loaded in.
    """
    text, driver = ctypes.create_string_buffer(PTX.encode()), gpu.driver
    library = driver.get("cuLibraryLoadData", text, 0, 0, 0, 0, 0, 0)
    return {
        name: driver.get("cuLibraryGetKernel", library, name.encode())
        for name in gpu.kernels
    }


def use_kernels(gpu: Machine, green: Green, patch: pytest.MonkeyPatch) -> None:
    """Have the machine launch its kernels on green streams, too."""
    patch.setattr(gpu, "kernels", kernels_of(gpu))
    launch = gpu.launch

    def launch_there(name: str, stream: int, *arguments: int, threads: int) -> None:
        with green.current() if stream in green.handles else nullcontext():
            launch(name, stream, *arguments, threads=threads)

    patch.setattr(gpu, "launch", launch_there)


def warm_up(gpu: Machine, green: Green) -> None:
    """Launch each kernel once, on each stream."""
    streams = [stream for pair in green.streams.values() for stream in pair]
    with green.current():
        for stream in (*streams, green.default):
            with gpu.gate.closed(stream):
                gpu.fill(gpu.memory[0], OLD, stream)
                gpu.read(gpu.memory[0], stream)
    gpu.warm_up()
