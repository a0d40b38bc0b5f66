"""`dlx.exchange_api`: which table a type has."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_void_p
from typing import Any

import array_api_strict
import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from support.dlpack_abi import (
    ENTRIES,
    capsule_destructor,
    capsule_name,
    capsule_pointer,
    table_of,
    take_reference,
)
from support.dlx_producers import ByMethod, Stored
from support.fake_producers import Producer
from support.fake_table import table_class
from support.optional_libraries import requires
from support.short_lived_classes import mixin_class

NAME = b"dlpack_exchange_api"
BORROW = "dltensor_from_py_object_no_sync"
GRID = np.arange(24, dtype=np.float32).reshape(4, 6)


def pointer(kind: Any) -> int:
    """Where the table of a type is."""
    return capsule_pointer(dlx.exchange_api(kind), NAME)


def to_object(kind: Any, **fields: Any) -> Any:
    """What the table of a type makes of a tensor."""
    out = c_void_p()
    make = table_of(dlx.exchange_api(kind)).managed_tensor_to_py_object_no_sync
    assert make(Producer(**fields).export(), byref(out)) == 0
    return take_reference(out)


class Own(Producer):
    """A pure Python class with `__dlpack__`, and nothing that makes one."""


class Importing(Producer):
    """A pure Python class that makes itself."""

    @classmethod
    def from_dlpack(cls, x: Any) -> Importing:
        """Hold what comes."""
        made = cls()
        made.memory = x
        return made


# Which table a type has.


@pytest.mark.parametrize("kind", [dlx.Tensor, Stored, ByMethod, table_class()])
def test_a_type_with_a_table_keeps_it(kind: Any) -> None:
    """R112: the capsule is the type's own."""
    assert dlx.exchange_api(kind) is kind.__dlpack_c_exchange_api__


def test_torch_keeps_its_table() -> None:
    """R112, R117: also for a subclass that inherits it."""
    torch = requires("torch")
    own = torch.Tensor.__dlpack_c_exchange_api__
    assert dlx.exchange_api(torch.Tensor) is own
    assert dlx.exchange_api(torch.nn.Parameter) is own


def jax_array() -> Any:
    """The class of arrays of JAX."""
    return requires("jax").Array


TYPES: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.ndarray,
    "a subclass of numpy's": lambda: np.matrix,
    "array_api_strict": lambda: type(array_api_strict.asarray([1])),
    "pyarrow": lambda: pa.Array,
    "pyarrow doubles": lambda: pa.DoubleArray,
    "jax": jax_array,
    "Python": lambda: Own,
}
every_type = pytest.mark.parametrize("kind_of", TYPES.values(), ids=TYPES)


@every_type
def test_a_type_with_the_protocol_gets_one_table_for_ever(
    kind_of: Callable[[], Any],
) -> None:
    """R113 to R115: another than every other type's, and not set on the type."""
    kind = kind_of()
    capsule = dlx.exchange_api(kind)
    assert capsule_name(capsule) == NAME
    assert capsule_destructor(capsule) is None
    assert pointer(kind) == pointer(kind)
    others = {pointer(other) for other in (dlx.Tensor, Stored, Importing)}
    assert pointer(kind) not in others
    assert not hasattr(kind, "__dlpack_c_exchange_api__")


@every_type
def test_a_provided_table_is_a_whole_one(kind_of: Callable[[], Any]) -> None:
    """R119 to R122: nothing but the borrow is NULL."""
    table = table_of(dlx.exchange_api(kind_of()))
    version = table.header.version
    assert (version.major, version.minor) == (1, 3)
    assert not table.header.prev_api
    assert [name for name in ENTRIES if not getattr(table, name)] == [BORROW]


def test_a_subclass_has_a_table_of_its_own() -> None:
    """R117, R130: it makes objects of the subclass."""
    child = type("Child", (Importing,), {})
    assert pointer(child) != pointer(Importing)
    assert type(to_object(child)) is child


@pytest.mark.parametrize(
    "other", [int, list, object, type, bytearray, dict, memoryview]
)
def test_a_type_without_the_protocol_is_a_type_error(other: Any) -> None:
    """Buffers are types that `from_dlpack` reads, but no type's instances are made."""
    with pytest.raises(TypeError, match=f"{other.__name__} has no __dlpack__"):
        dlx.exchange_api(other)


@pytest.mark.parametrize("methods", ["__dlpack__", "__dlpack_device__"])
def test_half_of_the_protocol_is_a_type_error(methods: str) -> None:
    """R61: a class with one of the two methods."""
    half = type("Half", (), {methods: lambda self: None})
    with pytest.raises(TypeError, match="Half has no __dlpack__"):
        dlx.exchange_api(half)


@pytest.mark.parametrize(
    "other", [None, 5, "numpy.ndarray", GRID, dlx.from_dlpack(GRID)]
)
def test_what_is_no_type_is_a_type_error(other: Any) -> None:
    """Instances have no table."""
    for function in (dlx.exchange_api, dlx.publish, dlx.unpublish):
        with pytest.raises(TypeError):
            function(other)


def test_threads_that_ask_at_once_get_one_table() -> None:
    """R114, R145: for a class that none of them has seen."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(5):
                kind = type("Fresh", (Producer,), {})
                assert len(set(pool.map(pointer, [kind] * 16))) == 1
    finally:
        sys.setswitchinterval(interval)


def test_a_type_that_asks_while_it_is_asked_has_one_table() -> None:
    """R114: looking at a type may run any Python."""
    found: list[int] = []

    class Asking(type):
        def __getattribute__(cls, name: str) -> Any:
            if name == "from_dlpack" and not found:
                found.append(0)
                found.append(pointer(cls))
            return super().__getattribute__(name)

    kind = Asking("Fresh", (Importing,), {})
    assert {pointer(kind), *found[1:]} == {pointer(kind)}
    assert len(found) == 2


@pytest.mark.parametrize("base", [Own, Importing, mixin_class()])
def test_asking_keeps_no_class_alive(base: Any) -> None:
    """R114: the table lives on."""
    kind = type("Fresh", (base,), {})
    gone, capsule = weakref.ref(kind), dlx.exchange_api(kind)
    del kind
    gc.collect()
    assert gone() is None
    make, address = table_of(capsule), Producer().export()
    with pytest.raises(RuntimeError, match="the class is gone"):
        make.managed_tensor_to_py_object_no_sync(address, byref(c_void_p()))
