"""`dlx.inspect`: pointers are followed where they can lead, and functions named."""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_int64, c_void_p
from pathlib import Path

import dlx
import numpy as np
import pytest
from support import dlpack_abi
from support.dlpack_abi import (
    DLManagedTensorVersioned,
    for_ever,
    new_capsule,
)
from support.fake_producers import (
    ADDRESS,
    Producer,
    c_function,
)
from support.fake_table import table_class
from support.inspections import tensor_of


def test_a_used_capsule_is_named_only() -> None:
    producer = Producer()
    capsule = producer.capsule()
    dlx.from_dlpack(capsule)
    found = dlx.inspect(capsule)
    assert found.capsule is not None
    assert found.capsule.name == "used_dltensor_versioned"
    assert found.capsule.pointer is None
    assert found.tensor is None
    assert "not read" in repr(found)


def test_a_capsule_of_another_kind_is_named_only() -> None:
    found = dlx.inspect(new_capsule(ADDRESS, b"arrow_array"))
    assert found.capsule is not None
    assert (found.capsule.name, found.capsule.pointer) == ("arrow_array", None)


@pytest.mark.parametrize(
    "name", [b"dltensor", b"dltensor_versioned", b"dlpack_exchange_api"]
)
def test_a_capsule_that_points_to_no_memory_is_said_to(name: bytes) -> None:
    found = dlx.inspect(new_capsule(16, name))
    assert found.tensor is None
    assert "0x10" in repr(found)


@pytest.mark.parametrize("ndim", [-1, 65, 2**31 - 1, -(2**31)])
def test_dimensions_beyond_what_can_be_are_not_read(ndim: int) -> None:
    x = Producer(ndim=ndim)
    tensor = tensor_of(x)
    assert (tensor.ndim, tensor.shape, tensor.strides) == (ndim, None, None)
    assert tensor.shape_address == addressof(x.tensor.shape.contents)
    assert f"ndim {ndim}" in repr(dlx.inspect(x))


def test_null_shape_and_strides_are_said_to_be_null() -> None:
    x = Producer(shape=None, ndim=2, strides=None)
    assert "ndim 2, shape NULL, strides NULL" in repr(dlx.inspect(x))


def test_a_shape_outside_of_memory_is_not_read() -> None:
    x = Producer(shape=(2, 3))
    x.tensor.shape = ctypes.cast(c_void_p(64), ctypes.POINTER(c_int64))
    assert tensor_of(x).shape is None
    assert "shape at 0x40, not read" in repr(dlx.inspect(x))


def test_a_shape_that_reaches_the_end_of_memory_is_read_to_there() -> None:
    import mmap

    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    libc = ctypes.CDLL(None)
    start = addressof(ctypes.c_char.from_buffer(memory))
    libc.mprotect(c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0)
    last = c_int64.from_address(start + mmap.PAGESIZE - 8)
    last.value = 5
    try:
        x = Producer(shape=(1,))
        x.tensor.shape = ctypes.pointer(last)
        assert tensor_of(x).shape == (5,)
        x.tensor.ndim = 2
        assert tensor_of(x).shape is None
    finally:
        libc.mprotect(c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 3)


def test_behind_the_flags_of_another_major_version_nothing_is_read() -> None:
    """R29."""
    found = dlx.inspect(Producer(version=(2, 0)))
    assert found.managed is not None
    assert found.managed.version == (2, 0)
    assert found.tensor is None
    assert "major version 2" in found.unreadable[0]


def test_a_table_of_another_major_version_is_not_called() -> None:
    """R119."""
    found = dlx.inspect(table_class(major=2)())
    assert found.table is not None
    assert (found.table.version, found.table.functions) == ((2, 3), {})
    assert found.tensor is not None
    assert found.tensor.source == "__dlpack__"


def test_an_entry_that_is_no_code_is_not_called() -> None:
    data = for_ever(bytearray(64))
    address = addressof(ctypes.c_char.from_buffer(data))
    x = table_class(
        dltensor_from_py_object_no_sync=address,
        managed_tensor_from_py_object_no_sync=64,
    )()
    found = dlx.inspect(x)
    assert x.called == ["__dlpack_device__", "__dlpack__"]
    assert found.table is not None
    functions = found.table.functions
    assert functions["dltensor_from_py_object_no_sync"].kind == "memory"
    assert functions["managed_tensor_from_py_object_no_sync"].kind == "unmapped"


def test_a_deleter_that_is_no_code_is_not_called() -> None:
    x = table_class()(deleter=ctypes.cast(64, ctypes.c_void_p))
    x.__class__.__dlpack__ = property()  # type: ignore[method-assign,assignment]
    found = dlx.inspect(x)
    assert found.managed is not None
    assert found.managed.deleter.kind == "unmapped"


def test_functions_of_dlx_are_in_the_extension() -> None:
    table = dlx.inspect(dlx.Tensor).table
    assert table is not None
    places = [table.location, *table.functions.values()]
    assert len(places) == 6
    for place in places:
        assert place.kind == "library"
        assert place.library is not None
        assert Path(place.library).samefile(dlx._core.__file__)


def test_an_offset_counts_from_where_the_file_was_loaded() -> None:
    address = c_function("destroy_capsule")
    with open("/proc/self/maps") as maps:
        starts = [
            int(line.partition("-")[0], 16)
            for line in maps
            if line.rstrip().endswith("fake_table.so (deleted)")
        ]
    if not starts:
        pytest.skip("the list of mappings names the file in another way")
    found = dlx.inspect(Producer().capsule()).capsule
    assert found is not None
    assert found.destructor.address == address
    assert found.destructor.offset == address - min(starts)


def test_code_of_ctypes_is_said_to_be_generated() -> None:
    deleter = dlpack_abi.Deleter(lambda address: None)
    managed = dlx.inspect(Producer(deleter=deleter)).managed
    assert managed is not None
    assert managed.deleter.kind == "generated"
    assert "generated code" in str(managed.deleter)


def test_null_is_said_to_be_null() -> None:
    managed = dlx.inspect(Producer(deleter=None)).managed
    assert managed is not None
    assert str(managed.deleter) == "NULL"


def test_the_name_of_a_capsule_is_said_to_be_in_a_library_or_not() -> None:
    """R2."""
    static = dlx.inspect(np.zeros(3)).capsule
    made = dlx.inspect(Producer()).capsule
    assert static is not None
    assert made is not None
    assert static.name_location.kind == "library"
    assert made.name_location.kind == "memory"


def test_a_struct_in_memory_of_the_test_is_read_where_it_is() -> None:
    managed = DLManagedTensorVersioned()
    managed.version.major, managed.version.minor = 1, 3
    capsule = new_capsule(addressof(managed), b"dltensor_versioned")
    found = dlx.inspect(capsule).managed
    assert found is not None
    assert found.address == addressof(managed)
