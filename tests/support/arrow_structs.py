"""The structs of Arrow's C data interfaces, and an array that is on a device."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    addressof,
    c_char_p,
    c_int32,
    c_int64,
    c_void_p,
    cast,
)
from typing import Any

from support.dlpack_abi import for_ever, new_capsule

Release = CFUNCTYPE(None, c_void_p)


class ArrowSchema(Structure):
    """`ArrowSchema`."""

    _fields_ = (
        *((name, c_char_p) for name in ("format", "name", "metadata")),
        *((name, c_int64) for name in ("flags", "n_children")),
        *((name, c_void_p) for name in ("children", "dictionary")),
        ("release", Release),
        ("private_data", c_void_p),
    )


class ArrowArray(Structure):
    """`ArrowArray`."""

    _fields_ = (
        *((name, c_int64) for name in ("length", "null_count", "offset")),
        *((name, c_int64) for name in ("n_buffers", "n_children")),
        ("buffers", POINTER(c_void_p)),
        *((name, c_void_p) for name in ("children", "dictionary")),
        ("release", Release),
        ("private_data", c_void_p),
    )


class ArrowDeviceArray(Structure):
    """`ArrowDeviceArray`."""

    _fields_ = (
        ("array", ArrowArray),
        ("device_id", c_int64),
        ("device_type", c_int32),
        ("sync_event", c_void_p),
        ("reserved", c_int64 * 3),
    )


class OnDevice:
    """Float32 in memory of a device, by `__arrow_c_device_array__` alone, once."""

    def __init__(
        self,
        address: int,
        *,
        released: Callable[[], object] = lambda: None,
        **fields: Any,
    ) -> None:
        """Describe the memory; `fields` are of the structs, such as `sync_event`."""
        self.buffers = (c_void_p * 2)(fields.pop("validity", None), address)
        self.schema = ArrowSchema(
            format=fields.pop("format", b"f"), name=b"", release=_release_schema
        )
        names = {field[0] for field in ArrowArray._fields_}
        array = {name: fields.pop(name) for name in list(fields) if name in names}
        plain = {"length": 4, "null_count": 0, "n_buffers": 2} | array
        self.struct = ArrowDeviceArray(
            array=ArrowArray(release=_release_array, buffers=self.buffers, **plain),
            **{"device_type": 2, "device_id": 0} | fields,
        )
        self.kept: object = None
        """What has to live as long."""
        self.released = released
        self.releases = 0
        self.asked: list[dict[str, Any]] = []

    def __arrow_c_device_array__(
        self, requested_schema: Any = None, **keywords: Any
    ) -> tuple[Any, Any]:
        """Return the capsules."""
        self.asked.append(keywords)
        _exported[addressof(self.buffers)] = self
        return (
            new_capsule(addressof(self.schema), b"arrow_schema"),
            new_capsule(addressof(self.struct), b"arrow_device_array"),
        )


_exported: dict[int, OnDevice] = {}


def _let_go(address: int) -> None:
    struct = ArrowArray.from_address(address)
    struct.release = Release()
    array = _exported.pop(cast(struct.buffers, c_void_p).value or 0)
    array.releases += 1
    array.released()


def _let_schema_go(address: int) -> None:
    ArrowSchema.from_address(address).release = Release()


_release_array = for_ever(Release(_let_go))
_release_schema = for_ever(Release(_let_schema_go))
