"""Blocks of many arguments in many threads, whose libraries write all the time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ctypes import c_float
from random import Random
from typing import Any

import dlx

from gpu.clients import Client
from gpu.machine import COUNT, OLD, PORTABLE_MAPPED, Machine, Stream

ARGUMENTS, THREADS, ROUNDS = 16, 8, 100
DELAY_NS = 2_000_000
"""What comes before work, at random, so that what is not ordered is out of order."""


class Worker:
    """What one thread works with: a stream for each library and one more, and arrays.

    Everything is made, and every kernel loaded, before the threads start.
    """

    def __init__(self, gpu: Machine, clients: list[Client], seed: int) -> None:
        """Make it."""
        self.gpu, self.random, self.clients = gpu, Random(seed), clients
        self.streams = [Stream(gpu.driver) for _ in clients]
        self.own = Stream(gpu.driver)
        nbytes = 4 * COUNT * ARGUMENTS
        self.landing = gpu.driver.get("cuMemHostAlloc", nbytes, PORTABLE_MAPPED)
        self.libraries = [number % len(clients) for number in range(ARGUMENTS)]
        self.random.shuffle(self.libraries)
        with self.at_work():
            self.arrays = [clients[library].full(OLD) for library in self.libraries]
            self.write([OLD] * ARGUMENTS)
            self.block(self.own)
            gpu.synchronize()

    def at_work(self) -> ExitStack:
        """Work with each library on its stream."""
        entered = ExitStack()
        for client, stream in zip(self.clients, self.streams, strict=True):
            entered.enter_context(client.stream(stream))
        return entered

    def delay(self, stream: Stream) -> None:
        """Occupy a stream for a while: the gate never opens, and gives up."""
        shut = self.gpu.memory[3]
        self.gpu.launch("gate", stream.handle, shut, DELAY_NS, threads=1)

    def write(self, values: list[float]) -> None:
        """Have each library write to its arrays, in a random order."""
        order = list(range(ARGUMENTS))
        self.random.shuffle(order)
        for number in order:
            client = self.clients[self.libraries[number]]
            client.write(self.arrays[number], values[number])

    def block(self, stream: Stream, *, is_ordered: bool = True) -> None:
        """Read all arrays on a stream, in one block."""
        named: Any = stream if is_ordered else -1
        with dlx.borrow(*self.arrays, stream=named) as lent:
            self.delay(stream)
            for number, view in enumerate(lent[:ARGUMENTS]):
                place = self.landing + 4 * COUNT * number
                self.gpu.copy(place, view.data_ptr, stream)

    def one_round(self, *, is_ordered: bool) -> int:
        """Write, read in a block, and write again; count the arrays read wrong."""
        values = [float(self.random.randrange(1 << 20)) for _ in range(ARGUMENTS)]
        stream = self.random.choice([*self.streams, self.own])
        self.delay(self.random.choice(self.streams))
        self.write(values)
        self.block(stream, is_ordered=is_ordered)
        self.write([-1.0] * ARGUMENTS)
        for each in (*self.streams, self.own):
            each.synchronize()
        read = (c_float * (COUNT * ARGUMENTS)).from_address(self.landing)
        parts = [read[COUNT * n : COUNT * (n + 1)] for n in range(ARGUMENTS)]
        return sum(set(part) != {v} for part, v in zip(parts, values, strict=True))

    def discard(self) -> None:
        """Let the arrays go, and then the streams."""
        self.arrays.clear()
        self.gpu.synchronize()
        for stream in (*self.streams, self.own):
            self.gpu.driver.call("cuStreamDestroy_v2", stream.handle)
        self.gpu.driver.call("cuMemFreeHost", self.landing)

    def run(self, is_ordered: bool) -> int:
        """Do all rounds in the current thread; count the arrays read wrong."""
        self.gpu.driver.call("cuCtxSetCurrent", self.gpu.context)
        with self.at_work():
            return sum(self.one_round(is_ordered=is_ordered) for _ in range(ROUNDS))


def wrong_numbers(gpu: Machine, clients: list[list[Client]], is_ordered: bool) -> int:
    """Count the arrays read wrong by all threads, each with clients of its own."""
    gpu.fill(gpu.memory[3], 0.0, gpu.p)
    gpu.synchronize()
    workers = [Worker(gpu, own, seed) for seed, own in enumerate(clients)]
    try:
        with ThreadPoolExecutor(len(workers)) as threads:
            return sum(threads.map(lambda worker: worker.run(is_ordered), workers))
    finally:
        for worker in workers:
            worker.discard()
