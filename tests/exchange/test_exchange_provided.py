"""What the tables do that dlx provides for types of others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

import array_api_strict
import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import tvm_ffi
from numpy.lib.stride_tricks import as_strided
from support.dlpack_abi import (
    UNTOUCHED,
    Allocation,
    DLManagedTensorVersioned,
    delete,
    from_table,
    table_of,
    take,
    take_reference,
)
from support.dlx_producers import Failure, fields_of
from support.fake_producers import Producer
from support.libc import heap_in_use, needs_heap_in_use
from test_exchange_api import GRID, Importing, Own, jax_array, to_object

TABLE = table_of(dlx.exchange_api(np.ndarray))


ARRAYS: dict[str, Callable[[], Any]] = {
    "row-major": lambda: GRID,
    "transposed": lambda: GRID.T,
    "strided": lambda: GRID[::2, ::-3],
    "broadcast": lambda: as_strided(GRID[0], (5, 6), (0, GRID.itemsize)),
    "0-d": lambda: np.array(1.5),
    "empty": lambda: np.zeros((2, 0, 3)),
    "bool": lambda: np.array([True, False]),
    "complex": lambda: np.arange(3) * 1j,
    "matrix": lambda: np.array([[1, 2]]).view(np.matrix),
    "subclass": lambda: GRID.view(type("Sub", (np.ndarray,), {})),
}


@pytest.mark.parametrize("array_of", ARRAYS.values(), ids=ARRAYS)
def test_the_table_of_numpy_exports_what_dunder_dlpack_does(
    array_of: Callable[[], Any],
) -> None:
    """R128, apart from what R89 and R93 ask and NumPy does not do."""
    array = array_of()
    managed, own = from_table(TABLE, array), take(array.__dlpack__(max_version=(1, 3)))
    found, expected = fields_of(managed.dl_tensor), fields_of(own.dl_tensor)
    if not array.size:
        assert found.pop("data") is None
        expected.pop("data")
    if 1 in array.shape or not array.size:
        found.pop("strides"), expected.pop("strides")
    assert found == expected
    assert managed.flags == own.flags
    delete(managed)
    delete(own)


def test_an_export_of_an_array_holds_it() -> None:
    """R15, R16: two exports; the second one's deleter lets go."""
    array = np.arange(3)
    gone = weakref.ref(array)
    exports = [from_table(TABLE, array) for _ in range(2)]
    del array
    for managed in exports:
        assert gone() is not None
        delete(managed)
    assert gone() is None


NOT_DESCRIBABLE: dict[str, Any] = {
    "masked": np.ma.array([1, 2], mask=[False, True]),
    "objects": np.array([object()]),
    "text": np.array(["a"]),
    "times": np.zeros(2, "M8[s]"),
    "other byte order": np.zeros(2, ">i4"),
    "records": np.zeros(2, "i4,f4"),
    "bytes apart": np.zeros(3, "i1,i4")["f1"],
}


@pytest.mark.parametrize("array", NOT_DESCRIBABLE.values(), ids=NOT_DESCRIBABLE)
def test_what_dlpack_cannot_describe_is_a_buffer_error(array: Any) -> None:
    """R63, R124, R125, R92, R101: byte orders, strides, dtypes."""
    with pytest.raises(BufferError):
        from_table(TABLE, array)


@pytest.mark.parametrize(
    "other",
    [None, 5, [1], np.float64(3), dlx.from_dlpack(GRID), Own(), np.ndarray],
    ids=["None", "5", "list", "scalar", "dlx.Tensor", "Own", "class"],
)
def test_an_object_of_another_type_is_refused(other: Any) -> None:
    """R127: the error names the type of the table."""
    with pytest.raises(BufferError, match=r"table of numpy\.ndarray was given"):
        from_table(TABLE, other)


def test_a_subclass_with_its_own_protocol_is_asked() -> None:
    """R125: what it refuses or does itself counts, though it is an array."""

    class Refusing(np.ndarray[Any, Any]):
        def __dlpack__(self, **keywords: Any) -> Any:
            raise Failure

    class Doubling(np.ndarray[Any, Any]):
        def __dlpack__(self, **keywords: Any) -> Any:
            return (2 * np.asarray(self)).__dlpack__(**keywords)

    with pytest.raises(Failure):
        from_table(TABLE, GRID.view(Refusing))
    managed = from_table(TABLE, GRID.view(Doubling))
    assert managed.dl_tensor.data != GRID.ctypes.data
    delete(managed)


# managed_tensor_to_py_object_no_sync


@pytest.mark.parametrize("flags", [0, 1])
def test_the_table_of_numpy_makes_arrays(flags: int) -> None:
    """R130, R133: over the same memory, for as long as it lives."""
    producer, out = Producer(strides=(1, 2), flags=flags), c_void_p()
    TABLE.managed_tensor_to_py_object_no_sync(producer.export(), byref(out))
    array = take_reference(out)
    assert type(array) is np.ndarray
    assert (array.ctypes.data, array.strides) == (producer.data, (4, 8))
    assert array.flags.writeable is not bool(flags)
    del array
    assert producer.deleted == 1


def test_each_library_makes_its_own_arrays() -> None:
    """R130: array_api_strict, Arrow, and a class with `from_dlpack`."""
    strict = type(array_api_strict.asarray([1]))
    assert isinstance(to_object(strict), strict)
    array = to_object(pa.Array, shape=(3,))
    assert isinstance(array, pa.Array)
    assert array.to_pylist() == [0, 1, 2]
    made = to_object(Importing)
    assert (type(made), type(made.memory)) == (Importing, dlx.Tensor)


def test_jax_makes_its_own_arrays() -> None:
    """R130: by the table that dlx provides for JAX."""
    kind = jax_array()
    assert isinstance(to_object(kind), kind)


def test_a_class_that_nobody_can_make_is_a_buffer_error() -> None:
    """R123, R131: the tensor is still the caller's."""
    producer, out = Producer(), c_void_p(UNTOUCHED)
    make = table_of(dlx.exchange_api(Own)).managed_tensor_to_py_object_no_sync
    address = producer.export()
    with pytest.raises(BufferError, match=r"Own cannot be made from a tensor"):
        make(address, byref(out))
    assert (out.value, producer.deleted) == (UNTOUCHED, 0)
    delete(DLManagedTensorVersioned.from_address(address))


def test_what_numpy_cannot_hold_is_refused() -> None:
    """R63, R131: another device, or lanes; the tensor stays with the caller."""
    for fields in ({"device": (2, 0)}, {"dtype": (2, 32, 4)}):
        producer = Producer(**fields)
        address = producer.export()
        with pytest.raises(BufferError):
            TABLE.managed_tensor_to_py_object_no_sync(address, byref(c_void_p()))
        assert producer.deleted == 0
        delete(DLManagedTensorVersioned.from_address(address))


# The other two entries.


def test_the_allocator_of_a_provided_table_gives_memory() -> None:
    """R134, R138: on the CPU, and no other device."""
    made = Allocation(dlx.exchange_api(np.ndarray), (2, 3))
    assert (made.code, made.errors) == (0, [])
    assert made.managed.dl_tensor.shape[:2] == [2, 3]
    made.delete()
    assert Allocation(dlx.exchange_api(np.ndarray), (2,), device=(2, 0)).code == -1


@pytest.mark.parametrize(("device", "stream"), [((1, 0), None), ((2, 0), 1)])
def test_the_stream_of_a_provided_table_is_the_default_one(
    device: tuple[int, int], stream: int | None
) -> None:
    """R139, R141: NULL on the CPU, 1 on CUDA."""
    out = c_void_p(UNTOUCHED)
    assert TABLE.current_work_stream(*device, byref(out)) == 0
    assert out.value == stream


@needs_heap_in_use
def test_the_table_of_numpy_leaks_nothing() -> None:
    """R21: exports, imports and refusals by the thousand."""
    array = np.zeros((2, 3))
    masked = np.ma.array(array, mask=True)

    def used() -> int:
        for _ in range(20_000):
            out = c_void_p()
            managed = from_table(TABLE, array)
            TABLE.managed_tensor_to_py_object_no_sync(byref(managed), byref(out))
            take_reference(out)
        for _ in range(2000):
            with pytest.raises(BufferError):
                from_table(TABLE, masked)
        return heap_in_use()

    used()
    before = used()
    assert used() - before < 20_000


def test_tvm_is_not_needed_for_any_of_it() -> None:
    """`tvm_ffi.Tensor` is a type as any other with the protocol."""
    tensor = tvm_ffi.from_dlpack(GRID)
    managed = from_table(table_of(dlx.exchange_api(type(tensor))), tensor)
    assert managed.dl_tensor.data == GRID.ctypes.data
    delete(managed)
    assert isinstance(to_object(type(tensor)), type(tensor))
