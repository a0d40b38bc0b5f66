"""Parts of tensors (`t[index]`) on streams."""

from __future__ import annotations

import dlx
from support.cuda_producers import Framework
from support.simulated_driver import Simulation
from support.simulated_kernels import read, write


def test_a_part_is_ordered_as_the_tensor(sim: Simulation, library: Framework) -> None:
    """R80: its streams are those of the tensor."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        part = dlx.from_dlpack(array, stream=s)[2:]
        assert part.stream == s.handle
        read(s, part)
    assert sim.races == []


def test_a_block_waits_for_the_use_of_a_part(
    sim: Simulation, library: Framework
) -> None:
    """H1: also where the producer has gone to another stream."""
    p, q, s, t = (sim.stream() for _ in range(4))
    with library.stream(p):
        kept = dlx.from_dlpack(library.full((4,)))
    with library.stream(q):
        with kept[1:].use(stream=s) as part:
            write(s, part)
        with kept.use(stream=t) as whole:
            read(t, whole)
    assert sim.races == []


def test_the_memory_goes_back_when_the_part_is_done(
    sim: Simulation, library: Framework
) -> None:
    """H4: the tensor itself is gone before."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        part = dlx.from_dlpack(array, stream=s)[0]
        del array
        read(s, part)
        del part
        library.full((4,))
    assert sim.races == []


def test_a_part_on_a_device_has_no_list(sim: Simulation, library: Framework) -> None:
    """But a copy on the CPU has."""
    with library.stream(sim.stream()):
        t = dlx.from_dlpack(library.full((2, 2)))
        assert t[1].to(device="cpu").tolist() == [0.0, 0.0]
