"""What `dlx.inspect` returns: frozen records of plain values, and their text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dlx_check.inspection.names import device_name, dtype_name, flag_names
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
        return text(self)


_LABEL = 11
_CPU = 1


def text(inspection: Inspection) -> str:
    """Return one line for each record, two for what a table or tensor has more."""
    lines = [inspection.subject]
    for label, value in _rows(inspection):
        first, *more = value.splitlines() or [""]
        lines.append(f"{label:<{_LABEL}}{first}".rstrip())
        lines += [" " * _LABEL + line for line in more]
    return "\n".join(lines)


def _rows(it: Inspection) -> Iterator[tuple[str, str]]:
    yield "protocols", _protocols(it.protocols)
    if it.table is not None:
        yield "table", _table(it.table)
    if it.capsule is not None:
        yield "capsule", _capsule(it.capsule)
    if it.managed is not None:
        yield "struct", _managed(it.managed)
    if it.tensor is not None:
        yield "tensor", _tensor(it.tensor)
    if it.stream is None and it.tensor is not None:
        known = it.tensor.device[0] == _CPU
        yield "stream", "none on the CPU" if known else "not known"
    if it.stream is not None:
        yield "stream", _stream(it.stream)
    if it.differences is not None:
        yield (
            "differs",
            "\n".join(it.differences) or "nothing between table and __dlpack__",
        )
    if it.unreadable:
        yield "unreadable", "\n".join(it.unreadable)
    if it.hints:
        yield (
            "hints",
            "\n".join(f"{h.library} {h.version}: {h.text}" for h in it.hints),
        )


def _protocols(protocols: tuple[Protocol, ...]) -> str:
    lines = [", ".join(each.name for each in protocols if each.note is None)]
    lines += [f"{each.name} {each.note}" for each in protocols if each.note]
    return "\n".join(filter(None, lines)) or "none"


def _stream(stream: Stream) -> str:
    if stream.handle is None:
        return f"{stream.source} {stream.note}"
    return f"{stream.handle:#x}, from {stream.source}"


def _table(table: Table) -> str:
    if table.version is None:
        return f"not readable at {table.location}"
    major, minor = table.version
    lines = [f"{major}.{minor} at {table.location}, prev_api {table.prev_api}"]
    width = max(map(len, table.functions), default=0)
    lines += [f"  {name:<{width}}  {at}" for name, at in table.functions.items()]
    if table.previous is not None:
        lines += _table(table.previous).splitlines()
    return "\n".join(lines)


def _capsule(capsule: Capsule) -> str:
    name = "NULL" if capsule.name is None else capsule.name
    return (
        f"{name}\n"
        f"  name        {capsule.name_location}\n"
        f"  destructor  {capsule.destructor}"
    )


def _managed(managed: ManagedTensor) -> str:
    parts = [f"manager_ctx {_hex(managed.manager_ctx)}"]
    if managed.flags is not None:
        parts.insert(0, f"flags {flag_names(managed.flags)}")
    if managed.version is not None:
        major, minor = managed.version
        parts.insert(0, f"version {major}.{minor}")
    return f"{', '.join(parts)}\n  deleter     {managed.deleter}"


def _tensor(tensor: Tensor) -> str:
    where = f"data {_hex(tensor.data)} + {tensor.byte_offset}"
    if tensor.data:
        first = tensor.data + tensor.byte_offset
        where += f", aligned to {min(first & -first, 256)}"
    layout = (
        f"ndim {tensor.ndim}, shape {_pointed(tensor.shape, tensor.shape_address)}, "
        f"strides {_pointed(tensor.strides, tensor.strides_address)}"
    )
    kind = f"{dtype_name(tensor.dtype)}, {device_name(tensor.device)}"
    return f"{where}\n{layout}\n{kind}, from {tensor.source}"


def _pointed(values: tuple[int, ...] | None, address: int) -> str:
    if values is not None:
        return str(values)
    return "NULL" if not address else f"at {address:#x}, not read"


def _hex(address: int) -> str:
    return f"{address:#x}" if address else "NULL"
