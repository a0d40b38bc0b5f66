"""Contexts of the simulated driver (`simulated_driver`) beside the primary ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.simulated_objects import NON_BLOCKING, Stream

if TYPE_CHECKING:
    from support.simulated_driver import Simulation

DEFAULT_STREAM = 1
"""`CU_GREEN_CTX_DEFAULT_STREAM`."""


@dataclass(eq=False)
class Context:
    """A context, which need not be current."""

    sim: Simulation = field(repr=False)
    handle: int
    device: int
    green: int = 0
    """The green context that it stands for, if any."""
    live: bool = field(default=True, repr=False)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current within the block."""
        self.sim.call("cuCtxPushCurrent_v2", self.handle)
        try:
            yield
        finally:
            self.sim.call("cuCtxPopCurrent_v2", None)

    def stream(self, *, blocking: bool = False) -> Stream:
        """Make a stream."""
        with self.current():
            handle = self.sim.get("cuStreamCreate", 0 if blocking else NON_BLOCKING)
        return self.sim.keep(Stream(self.sim, handle, self.device))

    def destroy(self) -> None:
        """Destroy the context."""
        if self.green:
            self.sim.call("cuGreenCtxDestroy", self.green)
        else:
            self.sim.call("cuCtxDestroy_v2", self.handle)
        self.live = False

    def discard(self) -> None:
        """Destroy the context, unless it is destroyed."""
        if self.live:
            self.destroy()


def second_context(sim: Simulation, device: int = 0) -> Context:
    """Make a context beside the primary one, which is current nowhere."""
    handle = sim.get("cuCtxCreate_v2", 0, device)
    sim.call("cuCtxPopCurrent_v2", None)
    return sim.keep(Context(sim, handle, device))


def green_context(sim: Simulation, device: int = 0) -> Context:
    """Make a green context, which is current nowhere."""
    green = sim.get("cuGreenCtxCreate", 0, device, DEFAULT_STREAM)
    handle = sim.get("cuCtxFromGreenCtx", green)
    return sim.keep(Context(sim, handle, device, green))
