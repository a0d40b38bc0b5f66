"""`dlx.Tensor` as Python sees it, and the ways to one that ask no other library."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    delete,
    from_table,
    table_of,
)
from support.fake_producers import ADDRESS, Producer
from support.optional_libraries import requires

METAL = 8
USUAL: dict[str, Any] = {"ptr": ADDRESS, "shape": (2,), "dtype": "float32"}
ATTRIBUTES = {
    "shape": (2, 6),
    "strides": (12, -1),
    "ndim": 2,
    "size": 12,
    "nbytes": 48,
    "itemsize": 4,
    "dtype": dlx.DType("float32"),
    "device": dlx.Device("cpu"),
    "device_aliases": (),
    "data_ptr": ADDRESS,
    "readonly": False,
    "is_copied": False,
    "is_padded": False,
    "is_contiguous": False,
    "span": (ADDRESS - 20, 72),
    "stream": None,
}


class Owner:
    """What can be weakly referenced."""


def strided() -> dlx.Tensor:
    """The tensor that `ATTRIBUTES` describes."""
    return dlx.from_pointer(ADDRESS, (2, 6), "float32", strides=(12, -1))


def cuda(**options: Any) -> dlx.Tensor:
    """A tensor on a GPU that need not be there."""
    return dlx.from_pointer(ADDRESS, (2, 3), "float32", device="cuda:0", **options)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_has_its_value_and_type(name: str) -> None:
    """`help(dlx.Tensor)`: what each of them is."""
    value = getattr(strided(), name)
    assert value == ATTRIBUTES[name]
    assert type(value) is type(ATTRIBUTES[name])


def test_every_public_attribute_is_tabled_here() -> None:
    """What is added to the class is added to these tests."""
    public = {name for name in dir(dlx.Tensor) if not name.startswith("_")}
    methods = {"numpy", "raw", "synchronize", "to", "tobytes", "tolist", "use"}
    assert public == ATTRIBUTES.keys() | methods


def test_extents_are_plain_ints() -> None:
    """The stub: `tuple[int, ...]`."""
    tensor = strided()
    assert {type(value) for value in tensor.shape + tensor.strides} == {int}


def test_the_byte_offset_is_applied_to_data_ptr() -> None:
    """R95: `data_ptr` is the address of the first element."""
    producer = Producer(byte_offset=8)
    assert dlx.from_dlpack(producer).data_ptr == producer.tensor.data + 8


def test_the_byte_offset_is_not_added_to_the_handle_of_a_buffer_object() -> None:
    """R95: the `data` of Metal is no address."""
    producer = Producer(device=(METAL, 0), byte_offset=8)
    assert dlx.from_dlpack(producer).data_ptr == producer.tensor.data


def test_data_ptr_is_zero_without_elements() -> None:
    """R93, R94: NumPy's pointer is not NULL."""
    assert dlx.from_dlpack(np.empty((0, 3))).data_ptr == 0


def test_absent_strides_are_row_major() -> None:
    """R90: NULL strides become numbers."""
    assert dlx.from_dlpack(Producer(strides=None)).strides == (3, 1)


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((), (), True),
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((2, 3), (4, 1), False),
        ((1, 3), (99, 1), True),
        ((2, 1), (1, 7), True),
        ((0, 3), (9, 9), True),
        ((3, 0), (-9, 0), True),
        ((3,), (-1,), False),
        ((3,), (0,), False),
    ],
)
def test_is_contiguous_means_compact_and_row_major(
    shape: tuple[int, ...], strides: tuple[int, ...], contiguous: bool
) -> None:
    """R99: the stride of an extent of 1 or 0 says nothing."""
    tensor = dlx.from_pointer(ADDRESS, shape, "int8", strides=strides)
    assert tensor.is_contiguous is contiguous


@pytest.mark.parametrize(
    ("flag", "attribute"),
    [
        (DLPACK_FLAG_BITMASK_READ_ONLY, "readonly"),
        (DLPACK_FLAG_BITMASK_IS_COPIED, "is_copied"),
    ],
)
def test_a_flag_of_the_producer_is_an_attribute(flag: int, attribute: str) -> None:
    """R37, R42: `readonly` and `is_copied`, each by its bit."""
    tensor = dlx.from_dlpack(Producer(flags=flag))
    is_set = {"readonly": tensor.readonly, "is_copied": tensor.is_copied}
    assert [name for name in is_set if is_set[name]] == [attribute]


@pytest.mark.parametrize(("stream", "kept"), [(None, None), (-1, None), (2, 2), (9, 9)])
def test_stream_is_the_one_the_elements_become_ready_on(
    stream: int | None, kept: int | None
) -> None:
    """R76: -1 names none."""
    assert cuda(stream=stream).stream == kept


@pytest.mark.parametrize("name", [*ATTRIBUTES, "new"])
def test_an_attribute_cannot_be_set(name: str) -> None:
    """docs/safety.md, Threads: everything a `Tensor` holds is immutable."""
    with pytest.raises(AttributeError):
        setattr(strided(), name, ATTRIBUTES.get(name))


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_cannot_be_deleted(name: str) -> None:
    """docs/safety.md, Threads: everything a `Tensor` holds is immutable."""
    with pytest.raises(AttributeError):
        delattr(strided(), name)


@pytest.mark.parametrize("new", [dlx.Tensor, dlx.Tensor.__new__, object.__new__])
@pytest.mark.parametrize("arguments", [(), (np.arange(3),)])
def test_there_is_no_constructor(new: Any, arguments: tuple[Any, ...]) -> None:
    """`help(dlx.Tensor)`: made by `from_dlpack` and `from_pointer`."""
    with pytest.raises(TypeError):
        new(*(() if new is dlx.Tensor else (dlx.Tensor,)), *arguments)


def test_the_class_is_final() -> None:
    """R112, R130: a subclass would inherit a table that makes its base."""
    with pytest.raises(TypeError, match="base type"):
        type("Derived", (dlx.Tensor,), {})


def test_the_class_behind_has_no_table_and_no_instances() -> None:
    """R112, R130: whoever derives from it makes no tensor of another class."""
    behind: Any = dlx.Tensor.__base__
    derived: Any = type("Derived", (behind,), {})
    assert not hasattr(derived, "__dlpack_c_exchange_api__")
    with pytest.raises(TypeError, match="cannot create"):
        derived()


def test_every_tensor_is_of_the_one_class() -> None:
    """R112: the table is found on the type."""
    tensor = dlx.from_dlpack(np.arange(3))
    made = [tensor, tensor.to(copy=True), dlx.empty((2,), "float32"), strided()]
    with dlx.borrow(np.arange(3)) as (lent, _):
        made.append(lent)
    assert {type(one) for one in made} == {dlx.Tensor}


def test_the_garbage_collector_does_not_know_a_tensor() -> None:
    """docs/safety.md, S24: there is nothing in it that it could follow."""
    assert not gc.is_tracked(dlx.from_dlpack(np.arange(3)))


def test_a_weak_reference_dies_with_the_tensor() -> None:
    """As with any class that is written in Python."""
    tensor = strided()
    reference = weakref.ref(tensor)
    assert reference() is tensor
    del tensor
    assert reference() is None


def test_the_elements_are_those_at_the_address() -> None:
    """R15, R95: of `from_pointer`."""
    array = np.arange(6.0)
    tensor = dlx.from_pointer(array.ctypes.data, (2, 3), "float64", owner=array)
    assert np.asarray(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_strides_count_elements_and_may_be_negative() -> None:
    """R92, R97: `from_pointer`, from the last element on."""
    array = np.arange(6.0)
    last = array[5:].ctypes.data
    tensor = dlx.from_pointer(last, (3, 2), "float64", strides=(-1, -3), owner=array)
    assert np.asarray(tensor).tolist() == [[5, 2], [4, 1], [3, 0]]


@pytest.mark.parametrize("readonly", [False, True])
def test_readonly_reaches_the_consumer(readonly: bool) -> None:
    """R39: `from_pointer(readonly=True)` to NumPy."""
    array = np.arange(3)
    address = array.ctypes.data
    tensor = dlx.from_pointer(address, (3,), "int64", owner=array, readonly=readonly)
    assert tensor.readonly is readonly
    assert np.from_dlpack(tensor).flags.writeable is not readonly


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("float4_e2m1fn", "float4_e2m1fn"),
        ((2, 32, 4), "float32x4"),
        (dlx.DType("int8"), "int8"),
        (np.float32, "float32"),
        (np.dtype("complex64"), "complex64"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"),
    ],
)
def test_the_dtype_is_whatever_dtype_takes(spec: Any, name: str) -> None:
    """`help(dlx.DType)`: a name, a triple, or the dtype object of a library."""
    assert dlx.from_pointer(ADDRESS, (1,), spec).dtype == name


def test_the_dtype_may_be_torchs() -> None:
    """`help(dlx.DType)`."""
    torch = requires("torch")
    assert dlx.from_pointer(ADDRESS, (1,), torch.bfloat16).dtype == "bfloat16"


@pytest.mark.parametrize("device", ["rocm:1", (10, 1), dlx.Device("rocm:1")])
def test_the_device_is_whatever_device_takes(device: Any) -> None:
    """`help(dlx.Device)`: a name, or a type and an id."""
    assert dlx.from_pointer(ADDRESS, (1,), "int8", device=device).device == "rocm:1"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"ptr": 0}, ValueError, "NULL"),
        ({"ptr": -1}, ValueError, None),
        ({"ptr": 2**64}, ValueError, None),
        ({"ptr": 1.5}, TypeError, None),
        ({"shape": (-1,)}, ValueError, "negative"),
        ({"shape": (2**62,)}, ValueError, "address space"),
        *[
            (around, ValueError, "beyond the address space")
            for around in [
                {"ptr": 2**64 - 8, "shape": (2**40,), "dtype": "float64"},
                {"ptr": 2**64 - 8, "shape": (9,)},
                {"ptr": 2**64 - 1, "shape": (3,), "dtype": "int4"},
                {"ptr": 2**64 - 16, "shape": (2, 2), "strides": (1, 16)},
                {"ptr": 8, "shape": (2,), "strides": (-9,)},
                {"ptr": 2**61, "shape": (2,), "strides": (-(2**62),), "dtype": "int8"},
                {"ptr": 2**64 - 8, "shape": (9,), "device": "cuda"},
            ]
        ],
        ({"shape": (2**32, 2**32)}, ValueError, "address space"),
        ({"shape": (0, 2**32, 2**32)}, ValueError, "address space"),
        ({"shape": (2**64,)}, ValueError, None),
        ({"shape": (1,) * 65}, ValueError, "65 dimensions"),
        ({"shape": 3}, TypeError, None),
        ({"shape": (1.5,)}, TypeError, None),
        ({"shape": "12"}, TypeError, None),
        ({"strides": ()}, ValueError, "strides"),
        ({"strides": (1, 1)}, ValueError, "strides"),
        ({"strides": (2**62,)}, ValueError, "address space"),
        ({"strides": (-(2**63),)}, ValueError, "address space"),
        ({"strides": (2**64,)}, ValueError, None),
        ({"dtype": "float33"}, ValueError, "float33"),
        ({"dtype": (2, 33, 1)}, ValueError, "33 bits"),
        ({"device": "gpu"}, ValueError, "gpu"),
        ({"device": (5, 0)}, ValueError, "device type 5"),
        ({"stream": 1}, BufferError, "no streams"),
        ({"device": "cuda", "stream": 0}, ValueError, "stream is 0"),
        ({"device": "cuda", "stream": -2}, ValueError, "stream is -2"),
        ({"device": "cuda", "stream": True}, TypeError, "bool"),
    ],
)
def test_nonsense_is_refused(
    change: dict[str, Any], error: type[Exception], message: str | None
) -> None:
    """R31, R70, R74, R77, R88, R109, R111: each argument of `from_pointer`."""
    with pytest.raises(error, match=message):
        dlx.from_pointer(**USUAL | change)


@pytest.mark.parametrize(
    ("ptr", "around"),
    [
        (2**64 - 8, {"shape": (1,), "dtype": "float64"}),
        (2**64 - 1, {"shape": (2,), "dtype": "int4"}),
        (8, {"shape": (2,), "strides": (-8,)}),
        (2**64 - 8, {"shape": (0, 2**40)}),
        (2**64 - 8, {"shape": (2**40,), "device": "metal"}),
    ],
)
def test_what_ends_with_the_address_space_is_accepted(
    ptr: int, around: dict[str, Any]
) -> None:
    """R95: handles are no addresses, to which nothing is added."""
    keywords: dict[str, Any] = {"dtype": "int8"} | around
    assert dlx.from_pointer(ptr, **keywords).shape == around["shape"]


@pytest.mark.parametrize("ptr", [0, ADDRESS])
def test_without_elements_any_address_is_accepted(ptr: int) -> None:
    """R93, R94: and `data_ptr` is 0."""
    assert dlx.from_pointer(ptr, (2, 0), "float32").data_ptr == 0


def test_the_owner_lives_until_the_last_export_dies() -> None:
    """R15: capsule, array and buffer, one after the other."""
    owner = Owner()
    alive = weakref.ref(owner)
    tensor = dlx.from_pointer(owner=owner, **USUAL)
    exports = [tensor.__dlpack__(), np.from_dlpack(tensor), memoryview(tensor)]
    del owner, tensor
    while exports:
        assert alive() is not None
        exports.pop()
    assert alive() is None


def test_the_owner_may_be_let_go_by_a_deleter_on_another_thread() -> None:
    """R13: ctypes calls the deleter without the GIL."""
    owner = Owner()
    alive = weakref.ref(owner)
    tensor = dlx.from_pointer(owner=owner, **USUAL)
    managed = from_table(table_of(dlx.Tensor), tensor)
    del owner, tensor
    assert alive() is not None
    in_thread(lambda: delete(managed))
    assert alive() is None


@pytest.mark.parametrize("change", [{"shape": (-1,)}, {"dtype": "no"}, {"ptr": None}])
def test_a_refused_owner_is_not_kept(change: dict[str, Any]) -> None:
    """R21: no reference to it is left."""
    owner = Owner()
    before = sys.getrefcount(owner)
    with pytest.raises((ValueError, TypeError)):
        dlx.from_pointer(owner=owner, **USUAL | change)
    assert sys.getrefcount(owner) == before
