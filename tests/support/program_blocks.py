"""Blocks of `borrow` and `use` in random programs (`stream_programs`)."""

from __future__ import annotations

from typing import Any

import dlx

from support.program_libraries import LibraryOperations
from support.program_state import REFUSED, Block, Item
from support.simulated_kernels import read, write
from support.simulated_objects import Stream


class BlockOperations(LibraryOperations):
    """Operations of blocks."""

    def borrow(self, a: int, b: int, c: int) -> None:
        """Lend arrays or tensors for a block, on a given stream or the first one's."""
        self._borrow([a, b], c, c if c % 3 else None)

    def borrow_many(self, a: int, b: int, c: int) -> None:
        """Lend up to five for one block, the last one as `out=`."""
        self._borrow([a, b, a + 1, b + 1, a + 2], b, b if c % 3 else None, out=True)

    def _borrow(
        self, numbers: list[int], kinds: int, stream: int | None, *, out: bool = False
    ) -> None:
        items, lent = self._lend(numbers, kinds)
        if not items:
            return
        order: dict[str, Any] = {}
        if self.unordered or stream is not None:
            order["stream"] = self.order(self.streams[stream or kinds], kinds)
        if out and not getattr(lent[-1], "readonly", False):
            order["out"] = lent.pop()
        block = dlx.borrow(*lent, **order)
        self._enter("borrow", block, items, kinds)

    def _lend(
        self, numbers: list[int], kinds: int
    ) -> tuple[list[tuple[Item, bool]], list[Any]]:
        items: list[tuple[Item, bool]] = []
        lent: list[Any] = []
        for number in numbers:
            item = self.find(number, self._may_be_lent)
            if item is not None:
                whole = self.may_be_taken(item) and not (item.tensors and kinds % 2)
                item.lent = True
                items.append((item, whole))
                lent.append(item.array if whole else item.tensors[-1])
        return items, lent

    def launch(self, a: int, b: int, c: int) -> None:
        """Launch a kernel on up to three, on a given stream or the first one's.

        A library may switch to another stream in the function.
        """
        if self.unordered:
            return
        items, lent = self._lend([a, b, a + 1][: 1 + b % 3], c)
        if not items:
            return
        order = {} if c % 4 else {"stream": self.order(self.streams[b], c)}
        # The streams that they work on live until the call has ended.
        held = [library.current_stream() for library in self.libraries]
        launched: list[Stream] = []
        calls = self.sim.call_count

        @dlx.launcher
        def kernel(*addresses: int, stream: int) -> None:
            if self.sim.call_count == calls:
                self.count("launch without a call")
            # What is launched after that is behind nothing on the new stream.
            if c % 5 == 0 and self.muted != "launch":
                self.switch(a, b, c)
            lead = self.streams.named(stream) or Stream(self.sim, stream)
            launched.append(lead)
            if self.captures(lead) or self.may_launch(lead):
                for address in addresses:
                    self.sim.call("sim_launch", stream, b % 2, address, 16)

        left = self.call("launch", lambda: kernel(*lent, **order))
        del held
        if not launched:
            for item, _ in items:
                item.lent = False
            return
        if not any(whole for _, whole in items):
            self.fork(launched[0])
        for item, whole in items:
            self._returned(item, whole, is_joined=left is not REFUSED)

    def use(self, a: int, b: int, c: int) -> None:
        """Use a tensor for a block."""
        item = self.find(a, lambda item: item.is_in_use)
        if item is not None:
            item.lent = True
            given = self.unordered or b % 3
            stream = self.order(self.streams[b], c) if given else None
            block = item.tensors[-1].use(stream=stream)
            self._enter("use", block, [(item, False)], b)

    def _enter(
        self, path: str, block: Any, items: list[tuple[Item, bool]], kinds: int
    ) -> None:
        entered = self.call(path, block.__enter__)
        if entered is REFUSED:
            for item, _ in items:
                item.lent = False
            return
        views = list(entered) if path == "borrow" else [entered]
        lead = views.pop() if path == "borrow" else entered.stream
        lead = lead or dlx.Stream(self.streams[kinds])
        # A tensor that names none is used on the stream of any of them.
        held = [library.current_stream() for library in self.libraries]
        is_captured = self.captures(lead)
        self.blocks.append(
            Block(block, items, views, lead, f"end of {path}", is_captured, held)
        )

    def _may_be_lent(self, item: Item) -> bool:
        if item.lent or item.consumers:
            return False
        return bool(item.tensors) or self.may_be_taken(item)

    def inside(self, a: int, b: int, c: int) -> None:
        """Run a kernel in a block."""
        if self.blocks:
            block = self.blocks[a % len(self.blocks)]
            view = block.views[b % len(block.views)]
            if block.captured or self.may_launch(block.stream):
                (write if c % 2 else read)(block.stream, view)

    def leave(self, a: int, b: int, c: int) -> None:
        """Leave one of the blocks, in any order."""
        if not self.blocks:
            return
        index = a % len(self.blocks)
        if self.blocks[index].captured:
            # What was forked last is joined first.
            index = max(i for i, block in enumerate(self.blocks) if block.captured)
        block = self.blocks.pop(index)
        was_joined = block.captured or not self.captures(block.stream)
        if not (was_joined and any(whole for _, whole in block.items)):
            self.fork(block.stream)
        left = self.call(block.path, lambda: block.context.__exit__(None, None, None))
        for item, whole in block.items:
            self._returned(item, whole, is_joined=left is not REFUSED and was_joined)

    def _returned(self, item: Item, whole: bool, *, is_joined: bool) -> None:
        """Note what is true of an item after a block or a launch."""
        item.lent = False
        # These wait, too, and may be in the capture already.
        self.fork(item.library.current_stream())
        for tensor in item.tensors:
            self.fork(tensor.stream)
        if not is_joined:
            self._not_joined(item, whole)
            return
        item.told()
        item.stale = whole
        item.unknown = not item.has_table
        if whole and not item.has_table:
            item.tensors.clear()
            self.forget(item)

    def _not_joined(self, item: Item, whole: bool) -> None:
        """Note that a capture forbade to order the end of the block."""
        if whole:
            self.lose(item)
        else:
            # dlx still has to know when it may give the memory back.
            item.unknown = item.stale = True
