"""What `dlx.inspect` returns: frozen records of plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dlx_check.memory import Location

__all__ = [
    "Capsule",
    "Hint",
    "Inspection",
    "ManagedTensor",
    "Protocol",
    "Stream",
    "Table",
    "Tensor",
]


@dataclass(frozen=True)
class Protocol:
    """A protocol that an object or its type has."""

    name: str
    note: str | None = None
    """The exception that asking for it raised, or what it gives instead."""


@dataclass(frozen=True)
class Table:
    """An exchange table, and the older ones behind it."""

    attribute: str | None
    """The name under which the type publishes it; None for a capsule's own."""
    location: Location
    version: tuple[int, int] | None
    """None if the table cannot be read; then there is nothing else."""
    functions: dict[str, Location]
    """By C name; empty for a major version other than 1, whose layout may differ."""
    prev_api: Location
    previous: Table | None = None
    """The table at `prev_api`; None too if the chain leads back to this one."""


@dataclass(frozen=True)
class Capsule:
    """A capsule as it was found."""

    name: str | None
    """None for NULL, or where the name cannot be read."""
    name_location: Location
    pointer: int | None
    """None if the capsule was used: its pointer may lead nowhere."""
    destructor: Location


@dataclass(frozen=True)
class ManagedTensor:
    """The fields around the tensor; an unversioned struct has no version or flags."""

    address: int
    version: tuple[int, int] | None
    flags: int | None
    manager_ctx: int
    deleter: Location


@dataclass(frozen=True)
class Tensor:
    """The fields of a `DLTensor`, as they were written."""

    source: str
    """Where they come from: a function of the table, ``__dlpack__``, a capsule."""
    data: int
    byte_offset: int
    device: tuple[int, int]
    ndim: int
    dtype: tuple[int, int, int]
    """Code, bits, lanes."""
    shape_address: int
    strides_address: int
    shape: tuple[int, ...] | None
    """None if it cannot be read: NULL, not mapped, or an ndim below 0 or above 64."""
    strides: tuple[int, ...] | None
    """In elements; None as for the shape."""


@dataclass(frozen=True)
class Stream:
    """A stream that orders the work on a tensor, or is itself what was inspected."""

    source: str
    handle: int | None
    note: str | None = None


@dataclass(frozen=True)
class Hint:
    """Something that a library is known to do, which its exports do not say."""

    library: str
    version: str
    """The installed version; the hint was seen in one from `oldest` to `newest`."""
    oldest: str
    newest: str
    text: str


@dataclass(frozen=True, repr=False)
class Inspection:
    """What DLPack says of one object; its ``repr`` is the text of ``dlx inspect``."""

    subject: str
    protocols: tuple[Protocol, ...] = ()
    table: Table | None = None
    capsule: Capsule | None = None
    managed: ManagedTensor | None = None
    tensor: Tensor | None = None
    stream: Stream | None = None
    differences: tuple[str, ...] | None = None
    """Between the table's export and that of ``__dlpack__``; None without both."""
    hints: tuple[Hint, ...] = ()
    unreadable: tuple[str, ...] = ()
    """What could not be read, and why."""

    def to_dict(self) -> dict[str, Any]:
        """Return the records as dicts, lists and numbers, which fit into JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        """Return one line for each record."""
        from dlx_check.inspection.text import text

        return text(self)
