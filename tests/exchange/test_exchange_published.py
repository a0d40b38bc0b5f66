"""The exchange table of `dlx.Tensor` as consumers find it, and the exports of tables.

What the table makes is in `test_exchange_making.py`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import addressof, byref, c_void_p, cast
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import (
    ENTRIES,
    DLManagedTensorVersioned,
    DLTensor,
    capsule_destructor,
    capsule_name,
    capsule_pointer,
    delete,
    from_table,
    managed_in,
    table_of,
)
from support.dlx_producers import HOLDERS, Maker, Stored, every_holder, fields_of
from support.fake_producers import Producer
from support.fake_table import without_protocol
from support.libc import heap_growth, needs_heap_in_use
from support.python_process import run_python

TABLE = table_of(dlx.Tensor)
NAME = b"dlpack_exchange_api"

GRID = np.arange(24, dtype=np.float32).reshape(4, 6)
FROZEN = np.arange(6)
FROZEN.flags.writeable = False

TENSORS: dict[str, Callable[[], dlx.Tensor]] = {
    "row-major": lambda: dlx.from_dlpack(GRID),
    "transposed": lambda: dlx.from_dlpack(GRID.T),
    "strided": lambda: dlx.from_dlpack(GRID[::2, ::-3]),
    "broadcast": lambda: dlx.from_dlpack(np.broadcast_to(GRID[0], (5, 6))),
    "0-d": lambda: dlx.from_dlpack(np.array(1.5)),
    "empty": lambda: dlx.from_dlpack(np.zeros((2, 0, 3))),
    "bool": lambda: dlx.from_dlpack(np.array([True, False])),
    "read-only": lambda: dlx.from_dlpack(FROZEN),
    "copied": lambda: dlx.from_dlpack(GRID, copy=True),
    "padded fp4": lambda: dlx.from_dlpack(Producer(dtype=(17, 4, 1), flags=4)),
    "vector": lambda: dlx.from_dlpack(Producer(dtype=(2, 32, 4))),
    "offset": lambda: dlx.from_dlpack(Producer(byte_offset=8)),
    "cuda": lambda: dlx.from_dlpack(Producer(device=(2, 1))),
    "opencl": lambda: dlx.from_dlpack(Producer(device=(4, 0), byte_offset=8)),
}
every_tensor = pytest.mark.parametrize("tensor_of", TENSORS.values(), ids=TENSORS)

LENDERS = {name: HOLDERS[name] for name in ("dlx.Tensor", "stored tensor")}
every_lender = pytest.mark.parametrize("make", LENDERS.values(), ids=LENDERS)


class Unstreamed(Stored):
    """A class of its own, whose table has met no library that works on a stream."""


def managed_fields(managed: DLManagedTensorVersioned) -> dict[str, Any]:
    """Values of a managed tensor."""
    version = managed.version.major, managed.version.minor
    deleter = bool(managed.deleter)
    own = {"version": version, "flags": managed.flags, "deleter": deleter}
    return own | fields_of(managed.dl_tensor)


@contextmanager
def by_table(tensor: Any) -> Iterator[DLManagedTensorVersioned]:
    """Managed tensor from the table of an object's type, deleted at the end."""
    managed = from_table(table_of(type(tensor)), tensor)
    yield managed
    delete(managed)


# The attribute and the struct.


def test_the_table_stands_on_the_type_itself() -> None:
    """R112: in the `__dict__` of `dlx.Tensor`."""
    assert "__dlpack_c_exchange_api__" in vars(dlx.Tensor)


def test_the_capsule_has_the_name_of_the_header() -> None:
    """R113: `dlpack_exchange_api`."""
    assert capsule_name(dlx.Tensor.__dlpack_c_exchange_api__) == NAME


def test_the_capsule_has_no_destructor() -> None:
    """R115: so that dropping it does nothing."""
    assert capsule_destructor(dlx.Tensor.__dlpack_c_exchange_api__) is None


def test_every_lookup_finds_the_same_table() -> None:
    """R114: on the class and on instances."""
    found: list[Any] = [dlx.Tensor, type(dlx.from_dlpack(GRID)), dlx.from_dlpack(GRID)]
    capsules = [owner.__dlpack_c_exchange_api__ for owner in found]
    assert {capsule_pointer(capsule, NAME) for capsule in capsules} == {
        addressof(TABLE)
    }


def test_the_table_outlives_its_capsule() -> None:
    """R114: the attribute is deleted, the table still works."""
    program = """
import ctypes, gc, weakref
import dlx, numpy
from support.dlpack_abi import DLTensor, table_of
tensor = dlx.from_dlpack(numpy.arange(3.0))
table = table_of(dlx.Tensor)
del dlx.Tensor.__dlpack_c_exchange_api__
gc.collect()
out = DLTensor()
assert table.dltensor_from_py_object_no_sync(tensor, ctypes.byref(out)) == 0
assert out.data == tensor.data_ptr
"""
    assert run_python(program) == (0, "", "")


def test_the_version_is_1_3() -> None:
    """R119, R27: in the header of the table."""
    version = TABLE.header.version
    assert (version.major, version.minor) == (1, 3)


def test_there_is_no_older_table() -> None:
    """R120: `prev_api` is NULL."""
    assert not TABLE.header.prev_api


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_is_null(entry: str) -> None:
    """R121, and R122: dlx can borrow."""
    assert getattr(TABLE, entry)


# managed_tensor_from_py_object_no_sync


@every_holder
@every_tensor
def test_the_table_exports_the_same_fields_as_dunder_dlpack(
    make: Maker, tensor_of: Callable[[], dlx.Tensor]
) -> None:
    """R128: data, shape, strides, dtype, device and flags."""
    tensor = make(tensor_of())
    capsule = tensor.__dlpack__(max_version=(1, 3))
    by_protocol = managed_fields(managed_in(capsule))
    with by_table(tensor) as managed:
        assert managed_fields(managed) == by_protocol


@every_holder
@pytest.mark.parametrize(("name", "flags"), [("read-only", 1), ("padded fp4", 4)])
def test_flags_of_the_memory_are_exported(make: Maker, name: str, flags: int) -> None:
    """R39, R44: READ_ONLY, and the padding of sub-byte types."""
    with by_table(make(TENSORS[name]())) as managed:
        assert managed.flags == flags


@every_holder
def test_a_shared_copy_is_not_exported_as_copied(make: Maker) -> None:
    """R38: dlx.Tensor still holds the memory."""
    tensor = TENSORS["copied"]()
    assert tensor.is_copied
    with by_table(make(tensor)) as managed:
        assert managed.flags == 0


@every_holder
@pytest.mark.parametrize("first", [0, 1])
def test_exports_are_deleted_in_either_order(make: Maker, first: int) -> None:
    """R16, R15: the memory goes with the last of them."""
    producer = Producer()
    tensor = make(dlx.from_dlpack(producer))
    exports = [from_table(table_of(type(tensor)), tensor) for _ in range(2)]
    del tensor
    delete(exports.pop(first))
    assert producer.deleted == 0
    assert exports[0].dl_tensor.shape[:2] == [2, 3]
    delete(exports[0])
    assert producer.deleted == 1


def test_an_object_of_another_class_is_refused_with_minus_one() -> None:
    """R123, R127: dlx itself reports a table that returns 0 with an exception set."""
    borrowed = cast(TABLE.managed_tensor_from_py_object_no_sync, c_void_p).value
    other = without_protocol(managed_tensor_from_py_object_no_sync=borrowed)
    with pytest.raises(BufferError, match=r"^the exchange table of dlx.Tensor was"):
        dlx.from_dlpack(other())


@pytest.mark.parametrize(
    "entry",
    ["managed_tensor_from_py_object_no_sync", "dltensor_from_py_object_no_sync"],
)
@pytest.mark.parametrize(
    "other", [GRID, None, 0, dlx.Tensor, dlx.DType("int8")], ids=repr
)
def test_another_object_is_a_buffer_error_and_out_is_untouched(
    entry: str, other: Any
) -> None:
    """R127, R123, R124: for each entry that takes an object."""
    out = (ctypes.c_ubyte * 64)(*[0xAB] * 64)
    with pytest.raises(BufferError, match=r"table of dlx\.Tensor was given"):
        getattr(TABLE, entry)(other, out)
    assert bytes(out) == b"\xab" * 64


@pytest.mark.parametrize("kind", [None, Unstreamed])
@pytest.mark.parametrize(
    "entry",
    ["managed_tensor_from_py_object_no_sync", "dltensor_from_py_object_no_sync"],
)
def test_what_dunder_dlpack_refuses_the_table_refuses(
    kind: type[Unstreamed] | None, entry: str
) -> None:
    """R125: no order after stream 7 can be had from either."""
    tensor: Any = dlx.from_pointer(4096, (2,), "int8", device="cuda", stream=7)
    tensor = kind(tensor) if kind else tensor
    with pytest.raises(BufferError, match="stream 7"):
        tensor.__dlpack__(max_version=(1, 3))
    with pytest.raises(BufferError, match="stream 7"):
        getattr(table_of(type(tensor)), entry)(tensor, (c_void_p * 8)())


# dltensor_from_py_object_no_sync


@every_lender
@every_tensor
def test_a_borrowed_view_has_the_fields_of_an_export(
    make: Maker, tensor_of: Callable[[], dlx.Tensor]
) -> None:
    """R129, R128: of each kind of object and layout."""
    tensor, out = make(tensor_of()), DLTensor()
    borrow = table_of(type(tensor)).dltensor_from_py_object_no_sync
    if tensor_of is TENSORS["padded fp4"]:
        with pytest.raises(BufferError, match="padded"):
            borrow(tensor, byref(out))
        return
    assert borrow(tensor, byref(out)) == 0
    with by_table(tensor) as managed:
        assert fields_of(out) == fields_of(managed.dl_tensor)


@every_lender
def test_borrowed_dimensions_belong_to_the_tensor(make: Maker) -> None:
    """R129: every call lends the same memory."""
    tensor = make(dlx.from_dlpack(GRID))
    views = [DLTensor(), DLTensor()]
    for view in views:
        table_of(type(tensor)).dltensor_from_py_object_no_sync(tensor, byref(view))
    first, second = views
    assert addressof(first.shape.contents) == addressof(second.shape.contents)
    assert addressof(first.strides.contents) == addressof(second.strides.contents)


def test_borrowing_takes_no_reference() -> None:
    """R129: nor does it leave one."""
    tensor, out = dlx.from_dlpack(GRID), DLTensor()
    before = sys.getrefcount(tensor)
    TABLE.dltensor_from_py_object_no_sync(tensor, byref(out))
    assert sys.getrefcount(tensor) == before


@needs_heap_in_use
def test_borrowing_keeps_no_memory() -> None:
    """R129: as many bytes of the C heap are in use after 1e5 calls as before."""
    tensor, out = dlx.from_dlpack(GRID), DLTensor()
    borrow, address = TABLE.dltensor_from_py_object_no_sync, addressof(out)
    assert heap_growth(lambda: borrow(tensor, address), 100_000) == 0
