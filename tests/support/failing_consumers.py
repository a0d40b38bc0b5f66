"""Consumers of the exchange tables that dlx publishes: they watch for broken rules."""

from __future__ import annotations

from ctypes import PYFUNCTYPE, addressof, byref, c_void_p, cast
from typing import Any

from support.dlpack_abi import (
    Allocation,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
    table_of,
    take_reference,
)
from support.failing_calls import library

_Deleter = PYFUNCTYPE(None, c_void_p)


class Reported(Exception):
    """What an allocator of dlx has reported."""


def _checked(name: str, wrong: bytes) -> None:
    if wrong:
        raise SystemError(f"{name} is a {wrong.decode()}")


def _consume(table: DLPackExchangeAPI, name: str, given: int, out: Any) -> None:
    address = cast(getattr(table, name), c_void_p)
    _checked(name, library().failing_consume(address, given, byref(out)))


def _delete(address: int) -> None:
    """Call a deleter attached, so that it may set an exception."""
    managed = DLManagedTensorVersioned.from_address(address)
    _Deleter(cast(managed.deleter, c_void_p).value or 0)(address)


def exported(x: Any) -> None:
    """Export through dlx's table, and delete what came of it."""
    out = c_void_p()
    _consume(table_of(type(x)), "managed_tensor_from_py_object_no_sync", id(x), out)
    _delete(out.value or 0)


def lent(x: Any) -> None:
    """Borrow through dlx's table."""
    out = DLTensor()
    _consume(table_of(type(x)), "dltensor_from_py_object_no_sync", id(x), out)


def taken(owner: Any, address: int) -> None:
    """Make an object through dlx's table; a refused tensor is the caller's."""
    out = c_void_p()
    name = "managed_tensor_to_py_object_no_sync"
    try:
        _consume(table_of(owner), name, address, out)
    except BaseException:
        _delete(address)
        raise
    take_reference(out)


def allocated(owner: Any) -> None:
    """Allocate through dlx's table."""
    made = Allocation(owner, (2, 3))
    if made.code != 0:
        raise Reported(made.errors[0][1:])
    _delete(addressof(made.managed))


def named(owner: Any, device: tuple[int, int]) -> int:
    """Ask dlx's table for its stream."""
    out, name = c_void_p(), "current_work_stream"
    address = cast(table_of(owner).current_work_stream, c_void_p)
    wrong = library().failing_consume_stream(address, *device, byref(out))
    _checked(name, wrong)
    return out.value or 0
