"""What libraries do in random programs (`stream_programs`)."""

from __future__ import annotations

from support.cuda_producers import InterfaceArray
from support.program_state import Item, State
from support.simulated_objects import Stream


class LibraryOperations(State):
    """Operations of libraries."""

    def new(self, a: int, b: int, c: int) -> None:
        """Make an array, from freed memory if there is any, on some stream."""
        if self.capturing is not None:
            return
        library = self.libraries[a % len(self.libraries)]
        home = self.streams[b] if c % 3 == 0 else None
        item = Item(library, library.full((4,), home=home))
        item.told()
        self.items.append(item)

    def change(self, a: int, b: int, c: int) -> None:
        """Make an array's library write to it."""
        self._work(a, write=True)

    def look(self, a: int, b: int, c: int) -> None:
        """Make an array's library read it."""
        self._work(a, write=False)

    def _work(self, number: int, *, write: bool) -> None:
        item = self.find(number, lambda item: item.is_free)
        if item is None or item.array is None:
            return
        if self.may_launch(item.library.current_stream()):
            item.array.launch(write)
            item.worked()
            self.done(item, item.library.current_stream())

    def switch(self, a: int, b: int, c: int) -> None:
        """Make a library switch to another stream, which waits for the old one.

        If it does not wait, the library never works on its earlier arrays again.
        """
        if self.capturing is None:
            library = self.libraries[a % len(self.libraries)]
            self._switch(library.current_stream(), self.streams[b], a, bool(c % 4))

    def _switch(self, before: Stream, stream: Stream, a: int, waits: bool) -> None:
        library = self.libraries[a % len(self.libraries)]
        if before.handle != stream.handle:
            if waits:
                with library.at_work(0):
                    stream.wait_for(before)
            else:
                self._leave_behind(a)
        if issubclass(library.Array, InterfaceArray):
            # The streams that it has named live as long as its arrays (R151).
            self.kept.append(stream)
        library.work_on(stream)

    def _leave_behind(self, a: int) -> None:
        library = self.libraries[a % len(self.libraries)]
        for item in self.items:
            if item.library is library:
                item.away = True
                if item.stale and not item.lent:
                    # Nobody tells dlx of the library's work on that stream any more.
                    item.tensors.clear()

    def replace(self, a: int, b: int, c: int) -> None:
        """Destroy a stream, and make another, in most cases with its handle."""
        found = self.streams.replace(a) if self.capturing is None else None
        if found is None:
            return
        old, make = found
        moved = [
            index
            for index, library in enumerate(self.libraries)
            if library.current_stream() is old
        ]
        for index in moved:
            self._leave_behind(index)
            self.libraries[index].work_on(None)
        del old, found
        new = make()
        for index in moved:
            self._switch(new, new, index, waits=False)

    def free(self, a: int, b: int, c: int) -> None:
        """Make a library free an array, unless something else holds it."""
        item = self.find(a, lambda item: item.array is not None and not item.lent)
        if item is not None:
            item.free()

    def advance(self, a: int, b: int, c: int) -> None:
        """Finish all work."""
        self.sim.advance()
