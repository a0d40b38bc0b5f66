"""Reads capsules, managed tensors and exchange tables where they are."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

from dlx_check.abi import (
    DLPACK_MAJOR_VERSION,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLPackExchangeAPIHeader,
    DLTensor,
    PyCapsule_GetDestructor,
    PyCapsule_GetName,
    PyCapsule_GetPointer,
)
from dlx_check.inspection.records import Capsule, ManagedTensor, Table, Tensor
from dlx_check.memory import located, read, read_name, read_struct

__all__ = [
    "Found",
    "described",
    "read_capsule",
    "read_managed",
    "read_table",
]

_FOLLOWED = ("dltensor", "dltensor_versioned", "dlpack_exchange_api")
# As many dimensions as a Python buffer has, and as dlx imports.
_MAX_NDIM = 64
# A longer chain than DLPack has versions is a loop.
_MAX_TABLES = 64


class Found(NamedTuple):
    """What a capsule, or a pointer to a managed tensor, has led to."""

    capsule: Capsule
    managed: ManagedTensor | None = None
    tensor: Tensor | None = None
    unreadable: tuple[str, ...] = ()


def read_capsule(capsule: Any, source: str = "the capsule") -> Found:
    """Read a capsule in place; it keeps its name and what it owns."""
    name_address = PyCapsule_GetName(capsule)
    name = read_name(name_address) if name_address else None
    pointer = None
    if name in _FOLLOWED:
        try:
            pointer = PyCapsule_GetPointer(capsule, name.encode())
        except ValueError:
            # Another thread has used it since its name was read.
            return read_capsule(capsule, source)
    record = Capsule(
        name,
        located(name_address),
        pointer,
        located(PyCapsule_GetDestructor(capsule)),
    )
    if pointer is None or name == "dlpack_exchange_api":
        return Found(record)
    managed, tensor, unreadable = read_managed(
        pointer, versioned=name == "dltensor_versioned", source=source
    )
    return Found(record, managed, tensor, unreadable)


def read_managed(
    address: int, *, versioned: bool, source: str
) -> tuple[ManagedTensor | None, Tensor | None, tuple[str, ...]]:
    """Read a managed tensor; the third value says what could not be read."""
    kind = DLManagedTensorVersioned if versioned else DLManagedTensor
    found: Any = read_struct(kind, address)
    if found is None:
        return None, None, (f"{source}: no memory at {address:#x}",)
    version = (found.version.major, found.version.minor) if versioned else None
    flags = found.flags if versioned else None
    managed = ManagedTensor(
        address, version, flags, found.manager_ctx or 0, located(found.deleter)
    )
    if version is not None and version[0] != DLPACK_MAJOR_VERSION:
        # Nothing behind the flags is known to be where version 1 has it.
        reason = f"{source}: the layout of major version {version[0]} is not known"
        return managed, None, (reason,)
    return managed, described(found.dl_tensor, source), ()


def described(tensor: DLTensor, source: str) -> Tensor:
    """Return the fields of a tensor; pointers are followed if they can lead there."""
    ndim = tensor.ndim
    return Tensor(
        source=source,
        data=tensor.data or 0,
        byte_offset=tensor.byte_offset,
        device=(tensor.device.device_type, tensor.device.device_id),
        ndim=ndim,
        dtype=(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes),
        shape_address=(shape := _address(tensor.shape)),
        strides_address=(strides := _address(tensor.strides)),
        shape=_integers(shape, ndim),
        strides=_integers(strides, ndim),
    )


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _integers(address: int, count: int) -> tuple[int, ...] | None:
    if not address or not 0 <= count <= _MAX_NDIM:
        return None
    found = read(address, 8 * count)
    return None if found is None else struct.unpack(f"={count}q", found)


def read_table(
    address: int, attribute: str | None, seen: frozenset[int] = frozenset()
) -> Table:
    """Read an exchange table, and those that its `prev_api` leads to."""
    location = located(address)
    header = read_struct(DLPackExchangeAPIHeader, address)
    if header is None:
        return Table(attribute, location, None, {}, located(None))
    version = (header.version.major, header.version.minor)
    functions = {}
    api = read_struct(DLPackExchangeAPI, address)
    if version[0] == DLPACK_MAJOR_VERSION and api is not None:
        functions = {name: located(getattr(api, name)) for name in api.ENTRIES}
    seen |= {address}
    previous = None
    if header.prev_api and header.prev_api not in seen and len(seen) < _MAX_TABLES:
        previous = read_table(header.prev_api, None, seen)
    prev_api = located(header.prev_api)
    return Table(attribute, location, version, functions, prev_api, previous)
