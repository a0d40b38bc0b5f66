"""The state of a random program (`stream_programs`), and its calls of dlx.

What a program does to arrays is up to it as long as it keeps the rules that users have
to keep: `Item` has what they have to know for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import dlx
from dlx._core import deferred

from support.cuda_producers import (
    CudaArray,
    DLPackArray,
    Framework,
    Imported,
    InterfaceArray,
)
from support.program_streams import Streams
from support.simulated_driver import RELEASE, Simulation
from support.simulated_kernels import Named
from support.simulated_objects import LEGACY, Stream

Release = Literal["auto", "record_stream", "none"]

Step = tuple[str, int, int, int]
"""An operation and three numbers, which choose its operands."""

REFUSED = object()
"""What a call returns that a capture forbids."""

MUTED_CALLS = ("cuStreamWaitEvent", "cuEventSynchronize", "cuStreamSynchronize")


@dataclass(eq=False)
class Item:
    """An array and what was made of it."""

    library: Framework
    array: CudaArray | None
    tensors: list[dlx.Tensor] = field(default_factory=list)
    """The last one is in use."""
    consumers: list[tuple[Imported, Stream]] = field(default_factory=list)
    lent: bool = False
    """Whether a block holds it."""
    unknown: bool = False
    """Whether there is work on it that its library does not wait for."""
    stale: bool = False
    """Whether the tensor's stream does not wait for work of the library."""
    away: bool = False
    """Whether its library has left a stream with work on it behind."""
    taken: dlx.Tensor | None = None
    """The tensor that was made of the array itself last."""
    freed: set[Stream] = field(default_factory=set)
    """The streams that the allocator was told of, once the library has freed it."""

    @property
    def is_free(self) -> bool:
        """Whether the library may work on it."""
        busy = self.lent or self.unknown or self.away or self.consumers
        return not busy and self.array is not None

    @property
    def recorded(self) -> set[Stream]:
        """The streams that the allocator was told of."""
        if self.array is None or self.array.storage is None:
            return self.freed
        return self.array.storage.recorded

    @property
    def has_table(self) -> bool:
        """Whether the library can be asked for its stream."""
        return hasattr(self.library.Array, "__dlpack_c_exchange_api__")

    @property
    def names(self) -> bool:
        """Whether the library names its stream."""
        return self.has_table or issubclass(self.library.Array, InterfaceArray)

    @property
    def orders_itself(self) -> bool:
        """Whether the library orders streams when it exports, in captures, too."""
        return not self.names

    @property
    def is_in_use(self) -> bool:
        """Whether there is a tensor, which no block and no consumer has."""
        return bool(self.tensors) and not (self.lent or self.consumers)

    def free(self) -> None:
        """Make the library free the array, unless something else holds it."""
        self.freed = self.recorded
        array, self.array = self.array, None
        if isinstance(array, DLPackArray):
            array.free()

    def told(self) -> None:
        """Tell the allocator of work on the library's stream, as it demands (H4).

        That is necessary where the block was allocated on another stream.
        """
        if self.array is not None and self.array.storage is not None:
            stream, storage = self.library.current_stream(), self.array.storage
            if stream.handle != storage.stream.handle:
                storage.recorded.add(stream)

    def worked(self) -> None:
        """Note that the library has worked on it."""
        self.told()
        self.stale = True
        if not self.has_table:
            self.tensors.clear()


@dataclass(eq=False)
class Block:
    """A block that has been entered."""

    context: Any
    items: list[tuple[Item, bool]]
    """Each with whether the array itself was lent, not a tensor."""
    views: Sequence[dlx.Tensor]
    stream: dlx.Stream
    path: str
    """What is muted at its end."""
    captured: bool
    """Whether its stream captured when it was entered."""
    held: Sequence[Stream]
    """The streams that its libraries worked on, which live as long."""


@dataclass(eq=False)
class State:
    """State of a running program."""

    sim: Simulation
    libraries: Sequence[Framework]
    consumer: Framework
    release: Release | None = None
    """Overrides the program's value, to switch dlx's ordering off."""
    unordered: bool = False
    """Whether `stream=-1` replaces every stream, to switch dlx's ordering off."""
    muted: str = ""
    """The path on which the driver ignores all waits, to switch dlx's ordering off."""
    items: list[Item] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    capturing: Stream | None = None
    lost: list[Item] = field(default_factory=list)
    """Those that are never used or freed, because a capture forbade the order."""
    before: list[tuple[Item, bool, bool]] = field(default_factory=list)
    """What is true of items after a capture, whatever it brings: `unknown`, `stale`."""
    captured: list[tuple[Item, dlx.Tensor]] = field(default_factory=list)
    """The tensors that were imported in a capture."""
    forked: set[int] = field(default_factory=set)
    """Handles of other streams on which the program has launched in a capture."""
    kept: list[Stream] = field(default_factory=list)
    """Streams that live as long as the program."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each operation of dlx was done, and refused."""
    streams: Streams = field(init=False)

    def __post_init__(self) -> None:
        """Have streams of the same machine."""
        self.streams = Streams(self.sim)

    def order(self, stream: Stream, number: int) -> Any:
        """Return what is passed as `stream=`; half of the numbers make it a handle."""
        if self.unordered:
            return -1
        if number % 24 < 12:
            return stream
        # Whoever passes a handle keeps the stream alive.
        self.kept.append(stream)
        return stream.handle

    def find(self, number: int, allowed: Callable[[Item], bool]) -> Item | None:
        """Choose one of the items."""
        found = [item for item in self.items if allowed(item)]
        return found[number % len(found)] if found else None

    def may_be_taken(self, item: Item) -> bool:
        """Whether an array may be exported now."""
        return item.is_free and not (self.capturing and item.orders_itself)

    def may_launch(self, stream: Named) -> bool:
        """Whether work breaks no capture: that on the legacy stream may (906).

        A stream that has joined the capture must be joined back, and live until then.
        """
        if self.capturing is None:
            return True
        self.fork(stream)
        return stream.handle != LEGACY and self.streams.named(stream.handle) is not None

    def captures(self, stream: Named) -> bool:
        """Whether a stream is part of the capture."""
        if self.capturing is None or stream.handle == LEGACY:
            return False
        return Stream(self.sim, stream.handle).capture_status() != 0

    def done(self, item: Item, stream: Named) -> None:
        """Note what is known of work that is done now, whatever is captured of it."""
        if self.capturing is not None and not self.captures(stream):
            self.before.append((item, item.unknown, item.stale))

    def fork(self, stream: Named | None) -> None:
        """Note that the program joins a stream back before the capture ends."""
        if self.capturing is not None and stream is not None:
            self.forked.add(stream.handle)

    @contextmanager
    def muting(self, path: str) -> Iterator[None]:
        """Make the driver ignore the waits of a path, if that is the muted one."""
        names: tuple[str, ...] = MUTED_CALLS if path == self.muted else ()
        for name in names:
            self.sim.fail_next(name, 0, 1000)
        if self.muted == "release":
            # Memory is given back as if all work were done.
            self.sim.fail_next("cuEventQuery", 0, 1000, by=RELEASE)
        try:
            yield
            if self.muted == "release":
                # What waits for a capture waits longer than this does.
                for _ in range(2000 if self.capturing is None else 20):
                    if deferred():
                        time.sleep(0.0005)
        finally:
            if names or self.muted == "release":
                self.sim.set_error(0)

    def call(self, path: str, function: Callable[[], Any]) -> Any:
        """Call dlx; a capture may forbid that."""
        try:
            with self.muting(path):
                result = function()
        except BufferError:
            if self.capturing is None:
                raise
            result, path = REFUSED, f"{path}, refused"
        else:
            path += " in a capture" if self.capturing is not None else ""
        self.count(path)
        return result

    def count(self, what: str) -> None:
        """Count that something was done."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def add(self, item: Item, tensor: dlx.Tensor) -> None:
        """Use a new tensor from now on; one of a capture lives as long as that."""
        item.tensors.append(tensor)
        if self.capturing is not None:
            self.captured.append((item, tensor))

    def forget(self, item: Item) -> None:
        """Never use an item again; its memory goes back when dlx lets go of it."""
        if not item.consumers and item in self.items:
            self.items.remove(item)
            item.free()

    def lose(self, item: Item) -> None:
        """Never use an item again, and keep its memory as long as the program."""
        self.items.remove(item)
        self.lost.append(item)
