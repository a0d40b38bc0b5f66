"""Captures in random programs (`stream_programs`): one stream at a time."""

from __future__ import annotations

from support.program_blocks import BlockOperations
from support.simulated_objects import GLOBAL, PER_THREAD, RELAXED, THREAD_LOCAL, Stream


class CaptureOperations(BlockOperations):
    """Operations of captures."""

    def begin(self, a: int, b: int, c: int) -> None:
        """Begin a capture, in any mode; libraries may work on its stream."""
        stream = self.streams[a]
        if self.capturing is None and stream.handle > PER_THREAD:
            for item in self.items:
                self.before.append((item, item.unknown, item.stale))
            self.capturing = stream
            self._tell_allocators()
            stream.begin_capture((GLOBAL, THREAD_LOCAL, RELAXED)[c % 3])

    def end(self, a: int, b: int, c: int) -> None:
        """End the capture, which must be intact; what it brought is dropped."""
        if self.capturing is None:
            return
        for index in reversed(range(len(self.blocks))):
            if self.blocks[index].captured:
                self.leave(index, 0, 0)
        self._join_back(self.capturing)
        stream, self.capturing = self.capturing, None
        stream.end_capture()
        self._tell_allocators()
        # What was captured has not been done: it makes nothing known.
        for item, unknown, stale in self.before:
            item.unknown |= unknown
            item.stale |= stale
        for item, tensor in self.captured:
            # One that a block has by now is none of the capture, whose blocks are left.
            if tensor in item.tensors and not (
                item.lent and tensor is item.tensors[-1]
            ):
                item.tensors.remove(tensor)
                # As in `drop`: what is unknown of it is unknown to everyone.
                if item.unknown and not item.lent:
                    item.tensors.clear()
                    self.forget(item)
                item.unknown = item.stale = True
        self.captured.clear()
        self.before.clear()

    def _join_back(self, stream: Stream) -> None:
        """Join what the program itself has launched outside of blocks."""
        for handle in self.forked:
            other = self.streams.named(handle)
            if other is None or handle == stream.handle:
                continue
            if self.captures(other):
                stream.wait_for(other)
        self.forked.clear()

    def _tell_allocators(self) -> None:
        for library in self.libraries:
            library.allocator.set_captures(self.capturing is not None)
