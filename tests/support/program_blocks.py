"""Blocks of `borrow` and `use` in random programs (`stream_programs`)."""

from __future__ import annotations

from typing import Any

import dlx

from support.program_state import REFUSED, Block, Item, State
from support.simulated_kernels import read, write


class BlockOperations(State):
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
        items: list[tuple[Item, bool]] = []
        lent: list[Any] = []
        for number in numbers:
            item = self.find(number, self._may_be_lent)
            if item is not None:
                whole = self.may_be_taken(item) and not (item.tensors and kinds % 2)
                item.lent = True
                items.append((item, whole))
                lent.append(item.array if whole else item.tensors[-1])
        if not items:
            return
        order: dict[str, Any] = {}
        if self.unordered or stream is not None:
            order["stream"] = self.order(self.streams[stream or kinds])
        if out and not getattr(lent[-1], "readonly", False):
            order["out"] = lent.pop()
        block = dlx.borrow(*lent, **order)
        self._enter("borrow", block, items, kinds)

    def use(self, a: int, b: int, c: int) -> None:
        """Use a tensor for a block."""
        item = self.find(a, lambda item: item.is_in_use)
        if item is not None:
            item.lent = True
            given = self.unordered or b % 3
            stream = self.order(self.streams[b]) if given else None
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
            item.lent = False
            # These wait, too, and may be in the capture already.
            self.fork(item.library.current_stream())
            for tensor in item.tensors:
                self.fork(tensor.stream)
            if left is REFUSED or not was_joined:
                self._not_joined(item, whole)
                continue
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
