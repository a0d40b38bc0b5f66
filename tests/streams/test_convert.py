"""`convert` of tensors on devices."""

from __future__ import annotations

from typing import Any, Self

import dlx
import pytest
from support.cuda_producers import DLPackArray, Framework, TableArray, framework
from support.simulated_driver import Simulation
from support.simulated_kernels import read


class Reading:
    """A class of another library, which reads on a stream of its own."""

    sim: Simulation
    dtype = "float32"

    @classmethod
    def from_dlpack(cls, x: Any) -> Self:
        """Import for the stream, and launch there."""
        stream, made = cls.sim.stream(), cls()
        made.capsule = x.__dlpack__(stream=stream.handle, max_version=(1, 3))
        read(stream, x)
        return made

    capsule: Any = None

    def __dlpack__(self, **keywords: Any) -> Any:
        """Give the tensor away."""
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return that of the simulation."""
        return (2, 0)


@pytest.mark.parametrize("kind", [TableArray, DLPackArray])
def test_an_importer_that_asks_for_a_stream_waits_for_the_producer(
    sim: Simulation, kind: Any
) -> None:
    """R80, H1: with a table or without, whatever stream dlx imported for."""
    library: Framework = framework(kind)
    Reading.sim = sim
    with library.stream(sim.stream()):
        array = library.full((4,))
        array += 1
        dlx.convert(array, Reading)
    assert sim.races == []
