"""The streams of random programs (`stream_programs`): of every kind, some replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from weakref import WeakSet

from support.simulated_contexts import Context, green_context, second_context
from support.simulated_driver import Simulation
from support.simulated_objects import (
    DISABLE_TIMING,
    NON_BLOCKING,
    PER_THREAD,
    Event,
    Stream,
)


class ForeignStream(Stream):
    """A stream of another context than the primary one, where its events are made."""

    def __init__(self, sim: Simulation, context: Context) -> None:
        """Make the stream, and an event for other threads than this one."""
        super().__init__(sim, context.stream().handle)
        self.context = context
        self._thread = get_ident()
        with context.current():
            self._elsewhere = self._event()

    def record(self) -> Event:
        """Record a new event; in another thread the same one each time.

        There a green context cannot be current, which is so in one thread at a time.
        """
        if get_ident() != self._thread:
            self._elsewhere.record(self)
            return self._elsewhere
        with self.context.current():
            event = self._event()
            event.record(self)
        return event

    def _event(self) -> Event:
        handle = self.sim.get("cuEventCreate", DISABLE_TIMING)
        return self.sim.keep(Event(self.sim, handle))


class MortalStream(Stream):
    """A stream that is destroyed with its last reference: its handle is used again."""

    def __del__(self) -> None:
        """Destroy the stream, whatever it still does."""
        self.discard()


def _mortal(sim: Simulation) -> Stream:
    return MortalStream(sim, sim.get("cuStreamCreate", NON_BLOCKING))


_KINDS: list[Callable[[Simulation], Stream]] = [
    lambda sim: sim.stream(),
    lambda sim: sim.stream(),
    lambda sim: sim.stream(blocking=True),
    lambda sim: sim.default_stream(),
    _mortal,
    lambda sim: ForeignStream(sim, second_context(sim)),
    _mortal,
    lambda sim: ForeignStream(sim, green_context(sim)),
    lambda sim: sim.default_stream(PER_THREAD),
]


@dataclass(eq=False)
class Streams:
    """The streams of one program, each made when it is first needed."""

    sim: Simulation
    _made: dict[int, Stream] = field(default_factory=dict)
    _given_up: WeakSet[Stream] = field(default_factory=WeakSet)

    def __getitem__(self, number: int) -> Stream:
        """Return the stream of a number; there are nine, and any number names one."""
        index = number % len(_KINDS)
        if index not in self._made:
            self._made[index] = _KINDS[index](self.sim)
        return self._made[index]

    def named(self, handle: int) -> Stream | None:
        """Return the stream of a handle, also one given up, if it is alive."""
        alive = [*self._made.values(), *self._given_up]
        return next((stream for stream in alive if stream.handle == handle), None)

    def replace(self, number: int) -> tuple[Stream, Callable[[], Stream]] | None:
        """Give up a mortal stream: return it, and what makes the one in its place.

        The new one has its handle if the old one is gone by then.
        """
        mortal = [
            index
            for index, made in self._made.items()
            if isinstance(made, MortalStream)
        ]
        if not mortal:
            return None
        index = mortal[number % len(mortal)]
        old = self._made.pop(index)
        self._given_up.add(old)
        return old, lambda: self[index]
