"""Random programs on streams: arrays of three libraries, dlx tensors, consumers.

A program keeps the rules that users have to keep, and no others. A library that
switches streams makes the new one wait for the old. No library is told of work on an
imported tensor outside of `use` and `borrow`: it leaves the array alone until the host
has waited, and its own work makes the tensor stale until a block uses it or it is
imported again. A library without a table is never told. A consumer finishes with a
tensor before it deletes it, or works on the tensor's own stream. The rest is up to dlx:
any race is its fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from ctypes import byref, c_void_p
from dataclasses import dataclass, field
from typing import Any, Literal

import dlx

from support.cuda_producers import CUDA, CudaArray, DLPackArray, Framework, Imported
from support.dlpack_abi import from_table, table_of
from support.simulated_driver import Simulation
from support.simulated_kernels import read, write
from support.simulated_objects import Stream

Release = Literal["auto", "record_stream", "none"]
RELEASES: tuple[Release, ...] = ("auto", "record_stream")

Step = tuple[str, int, int, int]
"""An operation and three numbers, which choose its operands."""


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

    @property
    def is_free(self) -> bool:
        """Whether the library may work on it."""
        return not (self.lent or self.unknown or self.consumers)

    @property
    def has_table(self) -> bool:
        """Whether the library can be asked for its stream."""
        return hasattr(self.library.Array, "__dlpack_c_exchange_api__")

    def free(self) -> None:
        """Make the library free the array, unless something else holds it."""
        array, self.array = self.array, None
        if isinstance(array, DLPackArray):
            array.free()

    def worked(self) -> None:
        """Note that the library has worked on it."""
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


@dataclass(eq=False)
class Program:
    """State of a running program."""

    sim: Simulation
    libraries: Sequence[Framework]
    consumer: Framework
    streams: Sequence[Stream]
    release: Release | None = None
    """Overrides the program's value, to switch dlx's ordering off."""
    unordered: bool = False
    """Whether `stream=-1` replaces every stream, to switch dlx's ordering off."""
    items: list[Item] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    _current: ExitStack = field(default_factory=ExitStack)

    def run(self, steps: Sequence[Step]) -> None:
        """Run all steps, and end."""
        with self._current:
            for library, stream in zip(self.libraries, self.streams, strict=False):
                self._current.enter_context(library.stream(stream))
            self.new(0, 0, 0)
            for name, *numbers in steps:
                getattr(self, name)(*numbers)
            while self.blocks:
                self.leave(0, 0, 0)
            for item in self.items:
                for index in range(len(item.consumers)):
                    self._end_consumer(item, -1, wait=bool(index % 2))
                item.tensors.clear()
                item.free()
            for index in range(2 * len(self.libraries)):
                self.new(index, 0, 0)

    def _order(self, stream: Stream) -> Any:
        return -1 if self.unordered else stream

    def _stream(self, number: int) -> Stream:
        return self.streams[number % len(self.streams)]

    def _find(self, number: int, allowed: Callable[[Item], bool]) -> Item | None:
        found = [item for item in self.items if allowed(item)]
        return found[number % len(found)] if found else None

    # Operations of libraries.

    def new(self, a: int, b: int, c: int) -> None:
        """Make an array, from freed memory if there is any."""
        library = self.libraries[a % len(self.libraries)]
        self.items.append(Item(library, library.full((4,))))

    def change(self, a: int, b: int, c: int) -> None:
        """Make an array's library write to it."""
        item = self._find(a, lambda item: item.is_free and item.array is not None)
        if item is not None and item.array is not None:
            item.array.launch(True)
            item.worked()

    def look(self, a: int, b: int, c: int) -> None:
        """Make an array's library read it."""
        item = self._find(a, lambda item: item.is_free and item.array is not None)
        if item is not None and item.array is not None:
            item.array.launch(False)
            item.worked()

    def switch(self, a: int, b: int, c: int) -> None:
        """Make a library switch to another stream."""
        library, stream = self.libraries[a % len(self.libraries)], self._stream(b)
        with library.at_work(0) as before:
            if before.handle != stream.handle:
                stream.wait_for(before)
        self._current.enter_context(library.stream(stream))

    def free(self, a: int, b: int, c: int) -> None:
        """Make a library free an array, unless something else holds it."""
        item = self._find(a, lambda item: item.array is not None and not item.lent)
        if item is not None and item.array is not None:
            item.free()

    # Operations of dlx.

    def take(self, a: int, b: int, c: int) -> None:
        """Import an array, with or without a stream."""
        item = self._find(a, lambda item: item.is_free and item.array is not None)
        if item is None:
            return
        release = self.release or RELEASES[c % len(RELEASES)]
        stream = self._order(self._stream(b)) if b % 5 else None
        if release == "record_stream" and stream is None:
            release = "auto"
        tensor = dlx.from_dlpack(item.array, stream=stream, release=release)
        item.tensors.append(tensor)
        item.stale = False

    def take_again(self, a: int, b: int, c: int) -> None:
        """Import a dlx tensor for another stream."""
        item = self._find(a, lambda item: bool(item.tensors) and not item.lent)
        if item is not None and not item.consumers:
            release = self.release or "auto"
            stream, before = self._stream(b), item.tensors[-1].stream
            tensor = dlx.from_dlpack(
                item.tensors[-1], stream=self._order(stream), release=release
            )
            item.tensors.append(tensor)
            item.stale &= before is not None and before.handle == stream.handle

    def kernel(self, a: int, b: int, c: int) -> None:
        """Run a kernel on the stream of a tensor."""

        def allowed(item: Item) -> bool:
            mine = bool(item.tensors) and not (item.lent or item.consumers)
            return mine and not (item.stale and not self.unordered)

        item = self._find(a, allowed)
        if item is None:
            return
        tensor = item.tensors[-1]
        stream = self._stream(b) if self.unordered else tensor.stream
        if stream is not None:
            (write if c % 2 else read)(stream, tensor)
            item.unknown = True

    def drop(self, a: int, b: int, c: int) -> None:
        """Drop any of the tensors."""
        item = self._find(a, lambda item: bool(item.tensors) and not item.lent)
        if item is None:
            return
        index = b % len(item.tensors)
        if item.unknown and index == len(item.tensors) - 1:
            # The work is then unknown to everyone, so the array is never used again.
            item.tensors.clear()
            self._forget(item)
        else:
            item.stale |= index == len(item.tensors) - 1
            del item.tensors[index]

    def _forget(self, item: Item) -> None:
        if not item.consumers:
            self.items.remove(item)
            item.free()

    def wait(self, a: int, b: int, c: int) -> None:
        """Make the host wait for a tensor."""
        item = self._find(a, lambda item: bool(item.tensors))
        if item is not None and not self.unordered:
            item.tensors[-1].synchronize()
            item.unknown = False

    def advance(self, a: int, b: int, c: int) -> None:
        """Finish all work."""
        self.sim.advance()

    # Blocks.

    def borrow(self, a: int, b: int, c: int) -> None:
        """Lend arrays or tensors for a block, on a given stream or the first one's."""
        items: list[tuple[Item, bool]] = []
        lent: list[Any] = []
        for number in (a, b):
            item = self._find(number, self._may_be_lent)
            if item is not None:
                item.lent = True
                whole = item.array is not None and not item.unknown
                whole = whole and not (item.tensors and c % 2)
                items.append((item, whole))
                lent.append(item.array if whole else item.tensors[-1])
        if items:
            stream = self._order(self._stream(c)) if self.unordered or c % 3 else None
            block = dlx.borrow(*lent, stream=stream)
            *views, lead = block.__enter__()
            lead = lead or dlx.Stream(self._stream(c))
            self.blocks.append(Block(block, items, views, lead))

    def use(self, a: int, b: int, c: int) -> None:
        """Use a tensor for a block."""
        item = self._find(a, lambda item: bool(item.tensors) and not item.consumers)
        if item is None or item.lent:
            return
        item.lent = True
        stream = self._order(self._stream(b)) if self.unordered or b % 3 else None
        block = item.tensors[-1].use(stream=stream)
        view = block.__enter__()
        lead = view.stream or dlx.Stream(self._stream(b))
        self.blocks.append(Block(block, [(item, False)], [view], lead))

    def _may_be_lent(self, item: Item) -> bool:
        if item.lent or item.consumers:
            return False
        return bool(item.tensors) or (item.array is not None and not item.unknown)

    def inside(self, a: int, b: int, c: int) -> None:
        """Run a kernel in a block."""
        if self.blocks:
            block = self.blocks[a % len(self.blocks)]
            view = block.views[b % len(block.views)]
            (write if c % 2 else read)(block.stream, view)

    def leave(self, a: int, b: int, c: int) -> None:
        """Leave one of the blocks, in any order."""
        if not self.blocks:
            return
        block = self.blocks.pop(a % len(self.blocks))
        block.context.__exit__(None, None, None)
        for item, whole in block.items:
            item.lent = False
            item.stale = whole
            item.unknown = not item.has_table
            if whole and not item.has_table:
                item.tensors.clear()
                self._forget(item)

    # Consumers.

    def give(self, a: int, b: int, c: int) -> None:
        """Export a tensor to a library through `__dlpack__`."""
        item = self._find(a, lambda item: bool(item.tensors) and not item.lent)
        if item is None or item.consumers:
            return
        stream = self._stream(b)
        with self.consumer.stream(stream):
            imported = self.consumer.from_dlpack(item.tensors[-1])
            imported.launch(bool(c % 2))
        item.consumers.append((imported, stream))

    def give_by_table(self, a: int, b: int, c: int) -> None:
        """Export a tensor through dlx's table, for dlx's current stream."""
        item = self._find(a, lambda item: bool(item.tensors) and not item.lent)
        if item is None or item.consumers:
            return
        with dlx.stream(self._stream(b)):
            table = table_of(dlx.Tensor)
            place = c_void_p()
            assert table.current_work_stream(CUDA, 0, byref(place)) == 0
            managed = from_table(table, item.tensors[-1])
        [stream] = [s for s in self.streams if s.handle == place.value]
        imported = Imported(self.consumer, managed)
        with self.consumer.stream(stream):
            imported.launch(bool(c % 2))
        item.consumers.append((imported, stream))

    def end_consumer(self, a: int, b: int, c: int) -> None:
        """Make a consumer delete its tensor, once it is done with it."""
        item = self._find(a, lambda item: bool(item.consumers))
        if item is not None:
            self._end_consumer(item, b, wait=bool(c % 2))

    def _end_consumer(self, item: Item, index: int, *, wait: bool) -> None:
        imported, stream = item.consumers.pop(index % len(item.consumers))
        known = item.tensors[-1].stream if item.tensors else None
        if known is not None and known.handle == stream.handle and not wait:
            item.unknown = True
        else:
            stream.synchronize()
        imported.drop()


STEPS = [
    name
    for name in vars(Program)
    if not name.startswith("_")
    and name not in Program.__annotations__
    and name != "run"
]
"""The names of all operations."""
