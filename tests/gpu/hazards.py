"""Hazards of streams.md, each as a program that counts the rounds in which it strikes.

The gate makes every round the worst case: the consumer's kernel, on S, has not begun
when the producer goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import dlx

from gpu.clients import CLIENTS, Client
from gpu.machine import NEW, OLD, Machine, machine, one_value

ROUNDS = 1000

Hazard = Callable[[Machine, Client, str], bool]
"""One round; True if the consumer saw what it must not see."""


def mutate(gpu: Machine, client: Client, order: str) -> bool:
    """H1: the producer writes, on P, to what a kernel on S has yet to read.

    `order` is what orders the two: "borrow", "use" or nothing ("none").
    """
    array = client.full(OLD)
    tensor = dlx.from_dlpack(array) if order == "use" else None
    stream: Any = -1 if order == "none" else gpu.s
    gpu.p.synchronize()
    with gpu.gate.closed(gpu.s):
        if tensor is not None:
            with tensor.use(stream=stream) as view:
                seen = gpu.read(view.data_ptr, gpu.s)
        else:
            with dlx.borrow(array, stream=stream) as (view, _):
                seen = gpu.read(view.data_ptr, gpu.s)
        client.write(array, NEW)
        gpu.p.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    return one_value(seen) != OLD


def free(gpu: Machine, client: Client, release: str) -> bool:
    """H4: the producer's pool hands out, on P, what a kernel on S has yet to read."""
    array = client.full(OLD)
    gpu.p.synchronize()
    keywords: dict[str, Any] = {"stream": gpu.s.handle, "release": release}
    with gpu.gate.closed(gpu.s):
        tensor = dlx.from_dlpack(array, **keywords)
        seen = gpu.read(tensor.data_ptr, gpu.s)
        del array
        del tensor
        # One of them reuses the memory of the array, if the pool has it back.
        again = [client.full(NEW) for _ in range(8)]
        gpu.p.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    del again
    return one_value(seen) != OLD


HAZARDS: dict[str, Hazard] = {"mutate": mutate, "free": free}


def two_streams(gpu: Machine, one: Client, other: Client, order: str) -> bool:
    """H2: a kernel on S reads what two libraries write on X and Y, then both write.

    True if it began before either write, or if a later write overtook it.
    """
    stream: Any = -1 if order == "none" else gpu.s
    with one.stream(gpu.x), other.stream(gpu.y):
        a, b = one.full(OLD), other.full(OLD)
        gpu.synchronize()
        with gpu.gate.closed(gpu.y):
            other.write(b, NEW)
            with dlx.borrow(a, b, stream=stream) as (va, vb, _):
                read = [gpu.read(view.data_ptr, gpu.s) for view in (va, vb)]
            one.write(a, NEW)
            other.write(b, OLD)
            gpu.x.settles()
            gpu.s.settles()
            gpu.gate.open()
            gpu.s.synchronize()
    return [one_value(elements) for elements in read] != [OLD, NEW]


def count(hazard: str, library: str, order: str, rounds: int = ROUNDS) -> int:
    """Return in how many of `rounds` a hazard strikes."""
    gpu, client = machine(), CLIENTS[library]()
    with client.stream(gpu.p):
        # What loads something when it is first used does so here, not behind the gate.
        array = client.full(OLD)
        client.write(array, OLD)
        with dlx.borrow(array, stream=-1):
            gpu.synchronize()
        HAZARDS[hazard](gpu, client, "none")
        return sum(HAZARDS[hazard](gpu, client, order) for _ in range(rounds))


def use_pools_of_the_driver(library: str) -> None:
    """Make a library, which has allocated nothing yet, use cudaMallocAsync."""
    if library == "torch":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
        backend = import_module("torch").cuda.memory.get_allocator_backend()
        if backend != "cudaMallocAsync":
            raise RuntimeError(f"torch uses the allocator {backend}")
    else:
        cupy = import_module("cupy")
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
