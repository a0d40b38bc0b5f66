"""Short-lived classes, and classes at the addresses of dead ones."""

from __future__ import annotations

import gc
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

import dlx

from support.dlpack_abi import DLPackExchangeAPI, table_of, take_reference
from support.fake_producers import Producer


def _keep(instance: Any, data: Any = None) -> None:
    instance.data = data


def mixin_class(*bases: Any, **body: Any) -> Any:
    """Make a class that keeps `data` and by default exports it."""
    keywords = {} if "__dlx_export__" in body or bases else {"exchange": "data"}
    return type(
        "Made", bases or (dlx.ExchangeMixin,), {"__init__": _keep} | body, **keywords
    )


def made(base: type[Any]) -> Any:
    """Make a subclass that nothing has been imported from."""
    return type("Made", (base,), {})


def plain_class(**body: Any) -> Any:
    """Make a class that keeps `data` and has nothing to do with dlx."""
    body |= {f"unused_{number}": number for number in range(3)}
    return type("Made", (), {"__init__": _keep} | body)


def taken_place(
    first: Callable[[], Any] = mixin_class, second: Callable[[], Any] = mixin_class
) -> tuple[DLPackExchangeAPI, Any]:
    """Return the table of a dead class, and a live class at the same address.

    A consumer that identifies types by address, and keeps none of them alive, mistakes
    this table for the later class's.
    """
    tables: dict[int, DLPackExchangeAPI] = {}
    for number in range(60):
        # Some allocators alternate between two addresses.
        for _ in range(1 + number % 2):
            dead = first()
            tables[id(dead)] = table_of(dead)
            del dead
            gc.collect()
        living = second()
        if id(living) in tables:
            return tables[id(living)], living
        del living
        gc.collect()
    raise AssertionError("no address was used twice")


def to_object(table: DLPackExchangeAPI) -> Any:
    """Return the table's object for a tensor, which is deleted even on failure."""
    producer, out = Producer(), c_void_p()
    address = producer.export()
    try:
        table.managed_tensor_to_py_object_no_sync(address, byref(out))
    except BaseException:
        assert producer.deleted == 0
        producer.exports[-1].managed.deleter(address)
        raise
    return take_reference(out)
