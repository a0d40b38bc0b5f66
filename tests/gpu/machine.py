"""The GPU as the tests see it: streams, a gate that blocks one, memory, kernels."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, byref, c_float, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

from gpu.driver import NON_BLOCKING, NOT_READY, Driver, DriverError
from gpu.kernels import PTX

COUNT = 1024
"""Elements of each tensor, all float32."""
OLD, NEW = 1.0, 2.0
SETTLED_S = 0.002
"""Seconds within which a stream that nothing blocks is done."""
LANDINGS = 32
GATE_S = 5.0
PORTABLE_MAPPED = 3


class Stream:
    """A stream that belongs to the test."""

    def __init__(self, driver: Driver, flags: int = NON_BLOCKING) -> None:
        """Create it, independent of the legacy default stream unless flags say 0."""
        self.driver = driver
        self.handle = driver.new_stream(flags)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version and handle (R154)."""
        return (0, self.handle)

    def is_done(self) -> bool:
        """Whether all its work is done."""
        code = self.driver.answer("cuStreamQuery", self.handle)
        if code not in (0, NOT_READY):
            raise DriverError("cuStreamQuery", code, self.driver.error_name(code))
        return code == 0

    def settles(self, seconds: float = SETTLED_S) -> bool:
        """Whether all its work is done within a timeout."""
        end = time.perf_counter() + seconds
        while not (done := self.is_done()) and time.perf_counter() < end:
            pass
        return done

    def synchronize(self) -> None:
        """Block until all its work is done."""
        self.driver.call("cuStreamSynchronize", self.handle)


class Gate:
    """Blocks a stream until the host opens it; one stream at a time."""

    def __init__(self, machine: Machine, address: int) -> None:
        """Keep the two words: open, and timed out."""
        self._machine = machine
        self._address = address
        self._words = (c_uint32 * 2).from_address(address)

    @contextmanager
    def closed(self, stream: Stream) -> Iterator[Gate]:
        """Block `stream` until `open` is called or the `with` block ends."""
        self._words[:] = [0, 0]
        limit = int(GATE_S * 1e9)
        self._machine.launch("gate", stream.handle, self._address, limit, threads=1)
        try:
            yield self
        finally:
            self.open()
            stream.synchronize()
        if self._words[1]:
            raise TimeoutError(
                f"the gate was not opened within {GATE_S} s: something in the block "
                "waited for its stream on the host, or the streams share a hardware "
                "queue (CUDA_DEVICE_MAX_CONNECTIONS)"
            )

    def open(self) -> None:
        """Let the stream go on."""
        self._words[0] = 1

    @contextmanager
    def opened_after(self, seconds: float) -> Iterator[None]:
        """Open it from another thread, because the `with` block waits on the host."""
        timer = threading.Timer(seconds, self.open)
        timer.start()
        try:
            yield
        finally:
            timer.join()


class Machine:
    """The first GPU with all that a test needs, made before any framework's streams.

    Nothing is allocated or loaded later: that would wait for a blocked stream.
    """

    def __init__(self) -> None:
        """Take the driver; the errors of `Driver` say why there is none."""
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
        self.driver = driver = Driver()
        self.context = driver.use_primary_context()
        text = ctypes.create_string_buffer(PTX.encode())
        module = driver.get("cuModuleLoadData", text)
        self.kernels = {
            name: driver.get("cuModuleGetFunction", module, name.encode())
            for name in ("gate", "copy", "fill")
        }
        self.p, self.s, self.x, self.y = (Stream(driver) for _ in range(4))
        nbytes = 4 * COUNT * LANDINGS + 8
        self._pinned = driver.get("cuMemHostAlloc", nbytes, PORTABLE_MAPPED)
        self._landing = 0
        self.gate = Gate(self, self._pinned + 4 * COUNT * LANDINGS)
        self.memory = [driver.get("cuMemAlloc_v2", 4 * COUNT) for _ in range(4)]
        self.warm_up()

    def warm_up(self) -> None:
        """Launch each kernel once, on each stream."""
        for stream in (self.p, self.s, self.x, self.y):
            with self.gate.closed(stream):
                self.fill(self.memory[0], OLD, stream)
                self.read(self.memory[0], stream)
        self.synchronize()

    def launch(self, name: str, stream: int, *arguments: int, threads: int) -> None:
        """Queue a kernel of one block."""
        values = [c_uint64(argument) for argument in arguments]
        places = (c_void_p * len(values))(*map(addressof, values))
        grid, block, shared = (1, 1, 1), (threads, 1, 1), 0
        function = self.kernels[name]
        launch = (function, *grid, *block, shared, stream, places, c_void_p())
        self.driver.call("cuLaunchKernel", *launch)

    def fill(self, address: int, value: float, stream: Stream | int) -> None:
        """Queue a kernel that writes one value to `COUNT` elements."""
        handle = stream if isinstance(stream, int) else stream.handle
        (bits,) = struct.unpack("I", struct.pack("f", value))
        self.launch("fill", handle, address, bits, COUNT, threads=256)

    def copy(self, to: int, address: int, stream: Stream | int) -> None:
        """Queue a kernel that copies `COUNT` elements."""
        handle = stream if isinstance(stream, int) else stream.handle
        self.launch("copy", handle, to, address, COUNT, threads=256)

    def read(self, address: int, stream: Stream | int) -> Any:
        """Queue a kernel that reads `COUNT` elements.

        The result holds them once the stream is done, until 32 more reads.
        """
        self._landing = (self._landing + 1) % LANDINGS
        place = self._pinned + 4 * COUNT * self._landing
        self.copy(place, address, stream)
        return (c_float * COUNT).from_address(place)

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        self.driver.call("cuCtxSynchronize")

    def is_capturing(self, stream: Stream | int) -> bool:
        """Whether a stream captures a graph, in a capture that has not failed."""
        handle = stream if isinstance(stream, int) else stream.handle
        status = ctypes.c_int()
        self.driver.call("cuStreamIsCapturing", handle, byref(status))
        return status.value == 1


def one_value(read: Any) -> float:
    """Return the value that all elements have; raise if they differ."""
    values = set(read)
    if len(values) != 1:
        raise AssertionError(f"elements of several kernels: {sorted(values)}")
    (value,) = values
    return float(value)


@cache
def machine() -> Machine:
    """Return the machine, which is made once per process."""
    return Machine()
