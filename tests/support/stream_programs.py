"""Random programs on streams: arrays of three libraries, dlx tensors, consumers.

A program keeps the rules that users have to keep, and no others. A library that
switches streams makes the new one wait for the old, or leaves its arrays alone from
then on. It tells its allocator of work on other streams than the one that a block was
allocated on. No library is told of work on an imported tensor outside of `use` and
`borrow`: it leaves the array alone until the host has waited, and its own work makes
the tensor stale until a block uses it or it is imported again. A library without a
table is never told. A function that takes one tensor by dlx's table, and asks after it,
counts as work of the library; others end before the host goes on. A consumer finishes
with a tensor before it deletes it, or works on the tensor's own stream. One stream at a
time captures, and what dlx refuses then is not done. The rest is up to dlx: any race,
and any broken capture, is its fault.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

from support.program_blocks import BlockOperations
from support.program_captures import CaptureOperations
from support.program_imports import ImportOperations
from support.program_libraries import LibraryOperations
from support.program_state import State, Step
from support.simulated_kernels import settle


@dataclass(eq=False)
class Program(ImportOperations, CaptureOperations):
    """A running program."""

    def run(self, steps: Sequence[Step]) -> None:
        """Run all steps, and end."""
        try:
            for index, library in enumerate(self.libraries):
                library.work_on(self.streams[index])
                library.allocator.set_captures(False)
            self.new(0, 0, 1)
            for name, *numbers in steps:
                getattr(self, name)(*numbers)
            self._finish()
        finally:
            for library in self.libraries:
                library.work_on(None)
            self._end_all()

    def _finish(self) -> None:
        self.end(0, 0, 0)
        while self.blocks:
            self.leave(0, 0, 0)
        for item in self.items:
            for index in range(len(item.consumers)):
                self._end_consumer(item, -1, wait=bool(index % 2))
            item.tensors.clear()
            item.free()
        for index in range(2 * len(self.libraries)):
            self.new(index, index // 2, index % 2)
        if self.lost:
            self.sim.call("cuCtxSynchronize")
            self.lost.clear()

    def _end_all(self) -> None:
        """Keep nothing, also where the program has failed."""
        if self.capturing is not None:
            self.capturing.discard()
        self.blocks.clear()
        self.captured.clear()
        self.before.clear()
        self.items.clear()
        # Cycles of this program would free memory and destroy streams of a later one.
        gc.collect()
        self._settle()

    def _settle(self) -> None:
        """Let what waits in dlx for streams of the program go while these are there."""
        self.sim.set_error(0)
        settle(self.sim)


STEPS = [
    name
    for base in (
        LibraryOperations,
        ImportOperations,
        CaptureOperations,
        BlockOperations,
    )
    for name in vars(base)
    if not name.startswith("_") and name not in vars(State)
]
"""The names of all operations."""
