"""Reports of the simulated driver (`simulated_driver`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
