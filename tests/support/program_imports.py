"""Imports, exports and releases in random programs (`stream_programs`)."""

from __future__ import annotations

from ctypes import addressof, byref, c_void_p
from typing import Any

import dlx

from support.arrow_structs import OnDevice
from support.concurrent_threads import in_thread
from support.cuda_producers import CUDA, Imported
from support.dlpack_abi import DLManagedTensorVersioned, from_table, table_of
from support.program_state import REFUSED, Item, Release, State
from support.simulated_kernels import read, write
from support.simulated_objects import LEGACY, PER_THREAD, Stream

RELEASES: tuple[Release, ...] = ("auto", "record_stream")


def exported_in_turn(tensors: list[dlx.Tensor], asks: int) -> tuple[list[Any], int]:
    """Export by dlx's table; return the tensors and the stream that it named."""
    table, place = table_of(dlx.Tensor), c_void_p()
    managed: list[Any] = []
    for number in range(len(tensors) + 1):
        if number == min(asks, len(tensors)):
            assert table.current_work_stream(CUDA, 0, byref(place)) == 0
        if number < len(tensors):
            managed.append(from_table(table, tensors[number]))
    return managed, place.value or LEGACY


class ImportOperations(State):
    """Operations on imported tensors, and those of consumers."""

    def take(self, a: int, b: int, c: int) -> None:
        """Import an array, with or without a stream."""
        item = self.find(a, self.may_be_taken)
        if item is None:
            return
        release = self.release or RELEASES[c % len(RELEASES)]
        stream = self.order(self.streams[b], c) if c % 5 else None
        if release == "record_stream" and not isinstance(stream, Stream):
            release = "auto"
        array = item.array
        order: dict[str, Any] = {"stream": stream, "release": release}
        tensor = self.call("take", lambda: dlx.from_dlpack(array, **order))
        self.fork(self.streams[b])
        if tensor is not REFUSED:
            self.add(item, tensor)
            item.taken = tensor
            item.stale = False
            item.told()

    def take_own(self, a: int, b: int, c: int) -> None:
        """Allocate memory of dlx, on a stream of the program or the current one."""
        library = self.libraries[0]
        item = Item(library, None)

        def make() -> dlx.Tensor:
            if c % 2:
                return dlx.empty(4, "float32", device="cuda:0")
            with dlx.stream(self.streams[b]):
                return dlx.empty(4, "float32", device="cuda:0")

        tensor = self.call("take_own", make)
        if tensor is not REFUSED and not self.capturing:
            item.tensors.append(tensor)
            self.items.append(item)

    def take_arrow(self, a: int, b: int, c: int) -> None:
        """Import an array of Arrow's, behind an event of its library's stream.

        Its library leaves the array alone from then on, and frees it.
        """
        library = self.libraries[2 * (a % 2)]
        if self.capturing is not None:
            return
        array = library.full((4,))
        with library.at_work(0) as current:
            event = current.record()
        place = c_void_p(event.handle)
        managed = DLManagedTensorVersioned.from_address(array.export())
        shown = OnDevice(
            array.data,
            sync_event=addressof(place),
            released=lambda: managed.deleter(addressof(managed)) or place,
        )
        array.free()
        stream = self.order(self.streams[b], c) if c % 3 else None
        item = Item(library, None)
        item.tensors.append(
            self.call("take_arrow", lambda: dlx.from_dlpack(shown, stream=stream))
        )
        self.items.append(item)

    def take_again(self, a: int, b: int, c: int) -> None:
        """Import a dlx tensor for another stream."""
        item = self.find(a, lambda item: item.is_in_use)
        if item is None:
            return
        stream, before = self.streams[b], item.tensors[-1].stream
        order: Any = {
            "stream": self.order(stream, c),
            "release": self.release or "auto",
        }
        last = item.tensors[-1]
        tensor = self.call("take_again", lambda: dlx.from_dlpack(last, **order))
        self.fork(stream)
        if tensor is not REFUSED:
            self.add(item, tensor)
            item.stale &= before is not None and before.handle == stream.handle

    def kernel(self, a: int, b: int, c: int) -> None:
        """Run a kernel on the stream of a tensor."""

        def allowed(item: Item) -> bool:
            return item.is_in_use and (self.unordered or not item.stale)

        item = self.find(a, allowed)
        if item is None:
            return
        tensor = item.tensors[-1]
        stream = self.streams[b] if self.unordered else tensor.stream
        if stream is not None and self.may_launch(stream):
            (write if c % 2 else read)(stream, tensor)
            item.unknown = True
            self.done(item, stream)

    def drop(self, a: int, b: int, c: int) -> None:
        """Drop any of the tensors, in any thread."""
        item = self.find(a, lambda item: bool(item.tensors) and not item.lent)
        if item is None:
            return
        index = b % len(item.tensors)
        is_last = index == len(item.tensors) - 1
        # An earlier tensor may not have been told of what its library has left behind.
        is_unknown = item.unknown or item.away
        if is_unknown and is_last:
            # The work is then unknown to everyone, so the array is never used again.
            gone, item.tensors = item.tensors, []
        else:
            item.stale |= is_last
            gone = [item.tensors.pop(index)]
        dropped = set(map(id, gone))
        self.captured = [each for each in self.captured if id(each[1]) not in dropped]
        elsewhere = not c % 4 and all(s.handle != PER_THREAD for s in item.recorded)
        drop = gone.clear
        self.call("drop", (lambda: in_thread(drop)) if elsewhere else drop)
        if is_unknown and is_last:
            self.forget(item)

    def wait(self, a: int, b: int, c: int) -> None:
        """Make the host wait for a tensor."""
        item = self.find(a, lambda item: bool(item.tensors))
        if item is not None and not self.unordered:
            tensor = item.tensors[-1]
            if self.call("wait", tensor.synchronize) is not REFUSED:
                item.unknown = False

    # Consumers.

    def give(self, a: int, b: int, c: int) -> None:
        """Export a tensor to a library through `__dlpack__`."""
        item = self.find(a, lambda item: item.is_in_use)
        if item is None:
            return
        stream, tensor = self.streams[b], item.tensors[-1]
        with self.consumer.stream(stream):
            imported = self.call("give", lambda: self.consumer.from_dlpack(tensor))
        self._given(item, imported, stream, write=bool(c % 2))

    def give_by_table(self, a: int, b: int, c: int) -> None:
        """Export a tensor through dlx's table, for dlx's current stream."""
        item = self.find(a, lambda item: item.is_in_use)
        if item is None:
            return
        tensor, place = item.tensors[-1], c_void_p()

        def export() -> Imported:
            table = table_of(dlx.Tensor)
            assert table.current_work_stream(CUDA, 0, byref(place)) == 0
            return Imported(self.consumer, from_table(table, tensor))

        with dlx.stream(self.streams[b]):
            imported = self.call("give_by_table", export)
        self._given(item, imported, self.streams[b], write=bool(c % 2))

    def call_by_table(self, a: int, b: int, c: int) -> None:
        """Call a function with tensors by dlx's table, on the stream that it names.

        It asks before the first tensor, after it, or after the last.
        """
        items = [self.find(number, lambda item: item.is_in_use) for number in (a, b)]
        found = [item for item in items if item is not None]
        if not found or self.capturing is not None:
            return
        if found[0] is found[1] or c % 4:
            del found[1]
        asks = c % 3 if len(found) == 2 or c % 3 < 2 else 1
        called = self.call(
            "call_by_table",
            lambda: exported_in_turn([item.tensors[-1] for item in found], asks),
        )
        managed, handle = called
        stream = self.streams.named(handle) or Stream(self.sim, handle)
        with self.consumer.stream(stream):
            for each in managed:
                imported = Imported(self.consumer, each)
                imported.launch(bool(c % 2))
                imported.drop()
        [first, *others] = found
        if asks and not others and first.tensors[-1] is first.taken and first.names:
            # Its library goes on after the function.
            first.worked()
        else:
            stream.synchronize()

    def _given(self, item: Item, imported: Any, stream: Stream, *, write: bool) -> None:
        self.fork(stream)
        if imported is REFUSED:
            return
        if self.may_launch(stream):
            with self.consumer.stream(stream):
                imported.launch(write)
        item.consumers.append((imported, stream))

    def end_consumer(self, a: int, b: int, c: int) -> None:
        """Make a consumer delete its tensor, once it is done with it."""
        item = self.find(a, lambda item: bool(item.consumers))
        if item is not None and self.capturing is None:
            self._end_consumer(item, b, wait=bool(c % 2))

    def _end_consumer(self, item: Item, index: int, *, wait: bool) -> None:
        imported, stream = item.consumers.pop(index % len(item.consumers))
        known = item.tensors[-1].stream if item.tensors else None
        if known is not None and known.handle == stream.handle and not wait:
            item.unknown = True
        else:
            stream.synchronize()
        self.call("end_consumer", imported.drop)
