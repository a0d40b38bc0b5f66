"""Streams, events and memory of the simulated driver (`simulated_driver`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char, c_int32, c_uint64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulated_driver import Simulation

LEGACY, PER_THREAD = 1, 2
NON_BLOCKING = 1
DISABLE_TIMING = 2
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
"""`CUstreamCaptureMode`."""

NOT_READY = 600


class DriverError(Exception):
    """A call that the simulated driver refused."""

    def __init__(self, name: str, code: int) -> None:
        """Keep the call's name and the code."""
        super().__init__(f"{name}: {code}")
        self.name = name
        self.code = code


@dataclass(eq=False)
class Stream:
    """A stream, or the name of a default one."""

    sim: Simulation = field(repr=False)
    handle: int
    device: int = 0

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
        self.sim.call("sim_launch", self.handle, int(write), address, nbytes)

    def allocate(self, nbytes: int) -> Memory:
        """Allocate in the order of this stream, from its pool."""
        address = self.sim.get("cuMemAllocAsync", nbytes, self.handle)
        return self.sim.keep(Memory(self.sim, address, nbytes, "cuMemFree_v2"))

    def free(self, memory: Memory) -> None:
        """Free in the order of this stream, to its pool."""
        self.sim.call("cuMemFreeAsync", memory.address, self.handle)
        memory.live = False

    def record(self) -> Event:
        """Record a new event."""
        event = self.sim.event(self.device)
        event.record(self)
        return event

    def wait(self, event: Event) -> None:
        """Wait for an event."""
        self.sim.call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def wait_for(self, other: Stream) -> None:
        """Wait for what another stream has queued."""
        self.wait(other.record())

    def query(self) -> bool:
        """Whether all is done."""
        code = self.sim.answer("cuStreamQuery", self.handle)
        if code not in (0, NOT_READY):
            raise DriverError("cuStreamQuery", code)
        return code == 0

    def synchronize(self) -> None:
        """Wait on the host."""
        self.sim.call("cuStreamSynchronize", self.handle)

    def advance(self) -> None:
        """Let all be done, without the host's knowledge."""
        self.sim.call("sim_advance", self.handle)

    def capture_status(self) -> int:
        """0 if nothing is captured, 1 if something is, 2 if that was broken."""
        place = c_int32()
        self.sim.call("cuStreamIsCapturing", self.handle, byref(place))
        return place.value

    def begin_capture(self, mode: int = GLOBAL) -> None:
        """Begin to capture."""
        self.sim.call("cuStreamBeginCapture_v2", self.handle, mode)

    def end_capture(self) -> None:
        """End the capture, and drop the graph."""
        graph = c_uint64()
        self.sim.call("cuStreamEndCapture", self.handle, byref(graph))
        self.sim.call("cuGraphDestroy", graph.value)

    @contextmanager
    def capture(self, mode: int = GLOBAL) -> Iterator[None]:
        """Capture what the block queues; at its end the capture must be whole."""
        self.begin_capture(mode)
        try:
            yield
        except BaseException:
            self.sim.answer("cuStreamEndCapture", self.handle, byref(c_uint64()))
            raise
        self.end_capture()

    def destroy(self) -> None:
        """Destroy the stream."""
        self.sim.call("cuStreamDestroy_v2", self.handle)

    def discard(self) -> None:
        """Destroy the stream, if it is there, with what it captures."""
        self.sim.answer("cuStreamEndCapture", self.handle, byref(c_uint64()))
        self.sim.answer("cuStreamDestroy_v2", self.handle)


@dataclass(eq=False)
class Event:
    """An event."""

    sim: Simulation = field(repr=False)
    handle: int

    def record(self, stream: Stream) -> None:
        """Record what the stream has queued."""
        self.sim.call("cuEventRecord", self.handle, stream.handle)

    def query(self) -> bool:
        """Whether it is done."""
        code = self.sim.answer("cuEventQuery", self.handle)
        if code not in (0, NOT_READY):
            raise DriverError("cuEventQuery", code)
        return code == 0

    def synchronize(self) -> None:
        """Wait on the host."""
        self.sim.call("cuEventSynchronize", self.handle)

    def destroy(self) -> None:
        """Destroy the event."""
        self.sim.call("cuEventDestroy_v2", self.handle)

    def discard(self) -> None:
        """Destroy the event, if it is there."""
        self.sim.answer("cuEventDestroy_v2", self.handle)


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
        """The bytes; to look at them is no access."""
        return memoryview((c_char * self.nbytes).from_address(self.address)).cast("B")

    def free(self) -> None:
        """Free at once."""
        self.sim.call(self.freed_by, self.address)
        self.live = False

    def discard(self) -> None:
        """Free what is not freed."""
        if self.live:
            self.free()
