"""What the simulated driver reports (`simulated_driver`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """A call in the journal."""

    index: int
    name: str
    arguments: dict[str, Any]
    """Without the places of results."""
    results: list[int]
    """What was written to those, as far as it is a number."""
    code: int
    thread: int
    caller: str
    """Empty for dlx, "test" for what is called from here."""


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
    """Two accesses that conflict and are in no order."""

    first: Access
    second: Access


@dataclass(frozen=True)
class Violation:
    """A use that drivers do not promise to survive."""

    what: str
    index: int
