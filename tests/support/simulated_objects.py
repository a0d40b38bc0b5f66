"""Streams, events and memory of the simulated driver (`simulated_driver`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, byref, c_char, c_int32, c_size_t, c_uint64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.simulated_driver import Simulation

LEGACY, PER_THREAD = 1, 2
NON_BLOCKING = 1
DISABLE_TIMING = 2
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
"""`CUstreamCaptureMode`."""

NOT_READY = 600

_HostFunction = CFUNCTYPE(None, c_size_t)
_host_functions: list[object] = []
"""Those queued, which the driver may call at any time."""


_HIP_NAMES = {
    "cuStreamBeginCapture_v2": "hipStreamBeginCapture",
    "cuStreamDestroy_v2": "hipStreamDestroy",
    "cuEventDestroy_v2": "hipEventDestroy",
    "cuMemAllocAsync": "hipMallocAsync",
    "cuMemFreeAsync": "hipFreeAsync",
    "sim_launch": "hip_sim_launch",
    "sim_advance": "hip_sim_advance",
}


def driver_name(name: str, hip: bool) -> str:
    """Return the name of a CUDA driver function, or of its HIP counterpart."""
    return _HIP_NAMES.get(name, "hip" + name.removeprefix("cu")) if hip else name


class DriverError(Exception):
    """A call that the simulated driver refused."""

    def __init__(self, name: str, code: int) -> None:
        """Keep the call's name and the code."""
        super().__init__(f"{name}: {code}")
        self.name = name
        self.code = code


@dataclass(eq=False)
class DriverObject:
    """A stream or an event."""

    sim: Simulation = field(repr=False)
    handle: int
    device: int = 0
    hip: bool = False
    live: bool = field(default=True, repr=False)
    """Until it is destroyed: then its handle may be that of something else."""

    def answer(self, name: str, *arguments: Any) -> int:
        """Call a driver function by its CUDA name, and return its error code."""
        return self.sim.answer(driver_name(name, self.hip), *arguments)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a driver function by its CUDA name; raise on error."""
        self.sim.call(driver_name(name, self.hip), *arguments)

    def done(self, name: str) -> bool:
        """Ask whether something is done."""
        code = self.answer(name, self.handle)
        if code not in (0, NOT_READY):
            raise DriverError(name, code)
        return code == 0


class Stream(DriverObject):
    """A stream, or the name of a default one."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version and handle (R154)."""
        return (0, self.handle)

    def read(self, memory: Memory) -> None:
        """Queue a kernel that reads."""
        self.launch(False, memory.address, memory.nbytes)

    def write(self, memory: Memory) -> None:
        """Queue a kernel that writes."""
        self.launch(True, memory.address, memory.nbytes)

    def launch(self, write: bool, address: int, nbytes: int) -> None:
        """Queue a kernel on some bytes."""
        self.call("sim_launch", self.handle, int(write), address, nbytes)

    def allocate(self, nbytes: int) -> Memory:
        """Allocate in stream order, from the pool."""
        address = self.sim.get(
            driver_name("cuMemAllocAsync", self.hip), nbytes, self.handle
        )
        free = "hipFree" if self.hip else "cuMemFree_v2"
        return self.sim.keep(Memory(self.sim, address, nbytes, free))

    def free(self, memory: Memory) -> None:
        """Free in stream order, to the pool."""
        self.call("cuMemFreeAsync", memory.address, self.handle)
        memory.live = False

    def record(self) -> Event:
        """Record a new event."""
        event = self.sim.event(self.device, hip=self.hip)
        event.record(self)
        return event

    def wait(self, event: Event) -> None:
        """Wait for an event."""
        self.call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def wait_for(self, other: Stream) -> None:
        """Wait for what another stream has queued."""
        self.wait(other.record())

    def query(self) -> bool:
        """Whether all work is done."""
        return self.done("cuStreamQuery")

    def synchronize(self) -> None:
        """Wait on the host."""
        self.call("cuStreamSynchronize", self.handle)

    def host_function(self, *steps: Callable[[], object]) -> None:
        """Queue a host function: a thread of the driver takes the GIL and the steps."""

        def run(_: int) -> None:
            for step in steps:
                step()

        call = _HostFunction(run)
        _host_functions.append(call)
        self.call("cuLaunchHostFunc", self.handle, call, 0)

    def fault(self) -> None:
        """Fail: every call for the device answers 700 until the process ends."""
        self.call("sim_fault", self.handle)

    def bound(self, length: int) -> None:
        """Limit the queue: a call that finds it full waits for the oldest work.

        What is queued already does not count.
        """
        self.call("sim_bound", self.handle, length)

    def advance(self) -> None:
        """Finish all work, without the host noticing."""
        self.call("sim_advance", self.handle)

    def capture_status(self) -> int:
        """Return 0 if not capturing, 1 if capturing, 2 if the capture is broken."""
        place = c_int32()
        self.call("cuStreamIsCapturing", self.handle, byref(place))
        return place.value

    def begin_capture(self, mode: int = GLOBAL) -> None:
        """Begin a capture."""
        self.call("cuStreamBeginCapture_v2", self.handle, mode)

    def end_capture(self) -> None:
        """End the capture, and drop the graph."""
        graph = c_uint64()
        self.call("cuStreamEndCapture", self.handle, byref(graph))
        self.call("cuGraphDestroy", graph.value)

    @contextmanager
    def capture(self, mode: int = GLOBAL) -> Iterator[None]:
        """Capture the work queued in the block; it must be intact at the end."""
        self.begin_capture(mode)
        try:
            yield
        except BaseException:
            self.sim.answer(
                driver_name("cuStreamEndCapture", self.hip),
                self.handle,
                byref(c_uint64()),
            )
            raise
        self.end_capture()

    def destroy(self) -> None:
        """Destroy the stream."""
        self.call("cuStreamDestroy_v2", self.handle)
        self.live = False

    def discard(self) -> None:
        """Destroy the stream, unless it is destroyed, with its capture."""
        if not self.live:
            return
        self.sim.answer(
            driver_name("cuStreamEndCapture", self.hip), self.handle, byref(c_uint64())
        )
        self.answer("cuStreamDestroy_v2", self.handle)


class Event(DriverObject):
    """An event."""

    def record(self, stream: Stream) -> None:
        """Record what the stream has queued."""
        self.call("cuEventRecord", self.handle, stream.handle)

    def query(self) -> bool:
        """Whether it is done."""
        return self.done("cuEventQuery")

    def synchronize(self) -> None:
        """Wait on the host."""
        self.call("cuEventSynchronize", self.handle)

    def destroy(self) -> None:
        """Destroy the event."""
        self.call("cuEventDestroy_v2", self.handle)
        self.live = False

    def discard(self) -> None:
        """Destroy the event, unless it is destroyed."""
        if self.live:
            self.answer("cuEventDestroy_v2", self.handle)


@dataclass(eq=False)
class Memory:
    """An allocation."""

    sim: Simulation = field(repr=False)
    address: int
    nbytes: int
    freed_by: str = field(repr=False)
    live: bool = True

    @property
    def content(self) -> memoryview:
        """Return the bytes; reading them here is not recorded as an access."""
        return memoryview((c_char * self.nbytes).from_address(self.address)).cast("B")

    def free(self) -> None:
        """Free at once."""
        self.sim.call(self.freed_by, self.address)
        self.live = False

    def discard(self) -> None:
        """Free the memory unless it is freed."""
        if self.live:
            self.free()
