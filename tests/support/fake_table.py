"""Fake exchange tables: classes whose table does what a test wants.

`Forward` and `not_called` expose an existing table, fake or not.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import addressof, c_void_p
from typing import Any, ClassVar, NoReturn, TypeAlias

from support.dlpack_abi import (
    ENTRIES,
    DLPackExchangeAPI,
    DLTensor,
    for_ever,
    give_reference,
    new_capsule,
)
from support.fake_producers import Producer, c_library

Entry: TypeAlias = Callable[..., int] | int | None
"""A Python function, an address (`c_function`), or None for NULL.

A Python function gets objects and addresses; it must return 0 or -1 and cannot leave an
exception set: entries that do so are in `fake_table.c`.
"""

FROM_PY = "managed_tensor_from_py_object_no_sync"
BY_TABLE = [FROM_PY]
"""`Producer.called` after an import through a table."""
BY_PROTOCOL = ["__dlpack_device__", "__dlpack__"]
"""`Producer.called` after an import without one."""


class TableProducer(Producer):
    """A producer with its own exchange table, as `table_class` makes it."""

    table: ClassVar[DLPackExchangeAPI]
    __dlpack_c_exchange_api__: ClassVar[Any]


def _working_entries(owner: type[Producer]) -> dict[str, Entry]:
    """Return entries that keep the contract, for instances of `owner`."""

    def allocate(prototype: int, out: int, context: int, set_error: int) -> int:
        wanted = DLTensor.from_address(prototype)
        dtype = (wanted.dtype.code, wanted.dtype.bits, wanted.dtype.lanes)
        shape = wanted.shape[: wanted.ndim] if wanted.ndim else []
        size = math.prod(shape) * ((dtype[1] * dtype[2] + 7) // 8)
        device = (wanted.device.device_type, wanted.device.device_id)
        made = owner(
            memory=bytearray(max(size, 1)), shape=shape, dtype=dtype, device=device
        )
        c_void_p.from_address(out).value = made.export()
        return 0

    def from_object(producer: Producer, out: int) -> int:
        producer.calls.append((FROM_PY, {}))
        c_void_p.from_address(out).value = producer.export()
        return 0

    def to_object(tensor: int, out: int) -> int:
        give_reference(owner.adopt(tensor), out)
        return 0

    def borrow(producer: Producer, out: int) -> int:
        producer.calls.append(("dltensor_from_py_object_no_sync", {}))
        ctypes.memmove(out, addressof(producer.tensor), ctypes.sizeof(DLTensor))
        return 0

    def stream(device_type: int, device_id: int, out: int) -> int:
        c_void_p.from_address(out).value = None
        return 0

    return dict(
        zip(ENTRIES, (allocate, from_object, to_object, borrow, stream), strict=True)
    )


def new_table(
    *,
    owner: type[Producer] = Producer,
    major: int = 1,
    minor: int = 3,
    prev: DLPackExchangeAPI | None = None,
    **entries: Entry,
) -> DLPackExchangeAPI:
    """Make a table of working entries, except those passed by their C names.

    `prev` is the table that `prev_api` points to; `owner` is the class that
    `managed_tensor_to_py_object_no_sync` makes.
    """
    if unknown := entries.keys() - ENTRIES.keys():
        raise TypeError(f"no entries of the table: {sorted(unknown)}")
    table = DLPackExchangeAPI()
    table.header.version = (major, minor)
    if prev is not None:
        table.header.prev_api = ctypes.pointer(prev.header)
    for name, entry in (_working_entries(owner) | entries).items():
        setattr(table, name, ENTRIES[name](entry or 0))
    return for_ever(table)


def table_class(name: str = "Fake", **options: Any) -> type[TableProducer]:
    """Make a producer class with a table; the options are those of `new_table`."""
    fake: type[TableProducer] = type(name, (TableProducer,), {})
    fake.table = new_table(**{"owner": fake, **options})
    fake.__dlpack_c_exchange_api__ = new_capsule(
        addressof(fake.table), b"dlpack_exchange_api"
    )
    return fake


def without_protocol(**options: Any) -> type[TableProducer]:
    """Make a class with only a table: an empty property has no getter."""
    made = table_class(**options)
    made.__dlpack__ = property()  # type: ignore[assignment]
    made.__dlpack_device__ = property()  # type: ignore[assignment]
    return made


def not_called(*arguments: Any, **keywords: Any) -> NoReturn:
    """Stand in for `__dlpack__`, so that only the table can be used."""
    raise AssertionError("__dlpack__ was called")


class Forward:
    """A wrapper whose table attribute is an object whose type has a table."""

    def __init__(self, inner: Any) -> None:
        """Wrap `inner`."""
        self.inner = inner

    @property
    def __dlpack_c_exchange_api__(self) -> Any:
        """Return the wrapped object."""
        return self.inner


def hand_out(address: int | None) -> None:
    """Set what the next `succeed_with_exception` or `fail_with_tensor` writes."""
    c_void_p.in_dll(c_library(), "handed_out").value = address
