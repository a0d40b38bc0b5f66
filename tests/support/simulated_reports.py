"""Reports of the simulated driver (`simulated_driver`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.simulated_driver import Simulation


@dataclass(frozen=True)
class Call:
    """A call in the journal."""

    index: int
    name: str
    arguments: dict[str, Any]
    """Without result pointers."""
    results: list[int]
    """Numbers written through those."""
    code: int
    thread: int
    caller: str
    """Empty for dlx, "test" for calls from here."""
    gil: bool
    """Whether the thread held the GIL."""
    waited: bool
    """Whether the call had to wait for a host function."""


@dataclass(frozen=True)
class Access:
    """One of the accesses in a race."""

    what: str
    write: bool
    stream: int | None
    """None for the host."""
    index: int
    start: int
    nbytes: int


@dataclass(frozen=True)
class Race:
    """Two conflicting accesses that are not ordered."""

    first: Access
    second: Access


@dataclass(frozen=True)
class Violation:
    """A use that drivers are not guaranteed to survive."""

    what: str
    index: int


def violated(sim: Simulation) -> list[str]:
    """Return what the violations say, without the address."""
    return [violation.what.rsplit(" at ", 1)[0] for violation in sim.violations]
