"""Many uses of one tensor, whose ends dlx looks through while others use it."""

from __future__ import annotations

import dlx
from support.concurrent_threads import in_step
from support.cuda_producers import Framework
from support.simulated_driver import Simulation
from support.simulated_kernels import read, write
from support.simulated_objects import Stream

USES = 60
ROUNDS = 30


def test_an_export_waits_for_uses_that_another_thread_looks_through(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H12: dlx asks the driver which are done; they are uses meanwhile, too."""

    started: list[int] = []

    def used() -> tuple[dlx.Tensor, list[dlx.Tensor], list[int], Stream]:
        tensor = dlx.from_dlpack(library.full((4,)))
        for _ in range(USES):
            write(s, dlx.from_dlpack(tensor, stream=s))
        last = dlx.from_dlpack(tensor, stream=s)
        return tensor, [last], [], sim.stream()

    def work(item: tuple[dlx.Tensor, list[dlx.Tensor], list[int], Stream]) -> None:
        tensor, last, turns, consumer = item
        turns.append(0)
        if len(turns) == 1:
            last.clear()
        else:
            for _ in range(400 * (len(started) % ROUNDS)):
                """Come later each time, to meet the other thread on its way."""
            started.append(0)
            with library.stream(p):
                tensor.__dlpack__(stream=consumer.handle)

    with library.stream(p):
        items = [used() for _ in range(ROUNDS)]
    in_step(work, items)
    for tensor, _, _, consumer in items:
        read(consumer, tensor)
    assert sim.races == []
