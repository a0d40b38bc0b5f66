"""The text of an inspection."""

from __future__ import annotations

from collections.abc import Iterator

from dlx_check.abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
)
from dlx_check.core import dlx
from dlx_check.inspection.records import (
    Capsule,
    Inspection,
    ManagedTensor,
    Protocol,
    Stream,
    Table,
    Tensor,
)

__all__ = ["device_name", "dtype_name", "flag_names", "text"]

_FLAGS = {
    DLPACK_FLAG_BITMASK_READ_ONLY: "READ_ONLY",
    DLPACK_FLAG_BITMASK_IS_COPIED: "IS_COPIED",
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: "IS_SUBBYTE_TYPE_PADDED",
}
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


def dtype_name(dtype: tuple[int, int, int]) -> str:
    """Return the usual name, or the three numbers of a type that has none."""
    try:
        return str(dlx.DType(dtype))
    except (BufferError, TypeError, ValueError, OverflowError):
        return "dtype code {}, bits {}, lanes {}".format(*dtype)


def device_name(device: tuple[int, int]) -> str:
    """Return the usual name, or the two numbers of a device that has none."""
    try:
        return str(dlx.Device(*device))
    except (BufferError, TypeError, ValueError, OverflowError):
        return "device type {}, id {}".format(*device)


def flag_names(flags: int) -> str:
    """Return the names of the bits that are set, 0 for none."""
    names = [name for bit, name in _FLAGS.items() if flags & bit]
    if unknown := flags & ~sum(_FLAGS):
        names.append(f"{unknown:#x}")
    return " | ".join(names) or "0"
