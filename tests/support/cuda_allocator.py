"""A caching allocator on the simulated driver, like torch's and CuPy's.

A block belongs to the stream that it was allocated on, not to the one that is current
when it is freed (`BlockPool` in PyTorch's `CUDACachingAllocator.cpp`, the arenas by
stream of CuPy's `SingleDeviceMemoryPool`). Freeing it on the host puts it on that
stream's free list at once, and the next allocation there may get it, whatever other
streams still do with it (H4).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from support.simulated_driver import Simulation
from support.simulated_objects import DriverError, Event, Memory, Stream


@dataclass(eq=False)
class Storage:
    """A block in use, counted by its holders."""

    allocator: CachingAllocator = field(repr=False)
    memory: Memory
    stream: Stream
    holders: int = 1
    recorded: set[Stream] = field(default_factory=set)
    """Streams that the block waits for before it is reused."""
    round: int = field(init=False)
    """The test that it belongs to."""

    def __post_init__(self) -> None:
        """Note the test."""
        self.round = self.allocator.sim.rounds

    def retain(self) -> None:
        """Add a holder."""
        with self.allocator.lock:
            self.holders += 1

    def release(self) -> None:
        """Drop a holder; the last one frees the block."""
        with self.allocator.lock:
            self.holders -= 1
            assert self.holders >= 0, "a block was released too often"
            if self.holders == 0:
                self.allocator.free(self)


class CachingAllocator:
    """Blocks of all devices."""

    def __init__(self, sim: Simulation) -> None:
        """Start empty."""
        self.sim = sim
        self.lock = threading.RLock()
        self._round = -1
        self._free: dict[tuple[int, int], list[Storage]] = defaultdict(list)
        self._waiting: list[tuple[list[Event], Storage]] = []
        self._captures = False
        self._after_capture: list[Storage] = []

    def set_captures(self, captures: bool) -> None:
        """Note whether a stream captures: then nothing is recorded, as in torch's.

        Not while a thread frees: it would record in a capture that it does not know of.
        """
        with self.lock:
            self._captures = captures

    def _forget_earlier_tests(self) -> None:
        if self._round != self.sim.rounds:
            self._round = self.sim.rounds
            self._free.clear()
            self._waiting.clear()
            self._after_capture.clear()

    def _sweep(self) -> None:
        if self._captures:
            return
        later, self._after_capture = self._after_capture, []
        for storage in later:
            self.free(storage)
        waiting, self._waiting = self._waiting, []
        for events, storage in waiting:
            if all(event.query() for event in events):
                self._put_back(storage)
            else:
                self._waiting.append((events, storage))

    def allocate(self, nbytes: int, stream: Stream) -> Storage:
        """Return the last large enough block freed on this stream, or a new one."""
        with self.lock:
            self._forget_earlier_tests()
            self._sweep()
            free = self._free[stream.device, stream.handle]
            for index in reversed(range(len(free))):
                if free[index].memory.nbytes >= nbytes:
                    return Storage(self, free.pop(index).memory, stream)
            kind = "hip" if stream.hip else "device"
            memory = self.sim.allocate(max(nbytes, 1), stream.device, kind=kind)
            return Storage(self, memory, stream)

    def empty_cache(self) -> None:
        """Give unused blocks back to the driver, as when memory runs out.

        `cuMemFree` breaks captures of the global mode (pytorch/pytorch#159594).
        """
        with self.lock:
            self._forget_earlier_tests()
            self._sweep()
            for blocks in self._free.values():
                while blocks:
                    blocks.pop().memory.free()

    def free(self, storage: Storage) -> None:
        """Take a block back; wait only for the recorded streams."""
        if storage.round != self.sim.rounds:
            return
        if storage.recorded and self._captures:
            self._after_capture.append(storage)
        elif storage.recorded:
            device, hip = storage.stream.device, storage.stream.hip
            try:
                with self.sim.on_device(device, hip=hip):
                    events = [stream.record() for stream in storage.recorded]
            except DriverError:
                # The next test has begun meanwhile: garbage is freed in any thread.
                if storage.round == self.sim.rounds:
                    raise
                return
            self._waiting.append((events, storage))
        else:
            self._put_back(storage)

    def _put_back(self, storage: Storage) -> None:
        # A stream lives as long as its blocks: its handle is never another's then.
        stream = storage.stream
        self._free[stream.device, stream.handle].append(storage)
