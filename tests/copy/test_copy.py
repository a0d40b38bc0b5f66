"""`copy=`: what dlx copies itself, and what it says of the result."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    delete,
    exported,
    from_table,
    table_of,
)
from support.dlx_producers import Maker, every_holder, every_producer
from support.fake_producers import ADDRESS, OldProducer, Producer, row_major

Array = NDArray[Any]


def cuda(stream: int | None = None) -> dlx.Tensor:
    """A tensor on a GPU that need not be there."""
    return dlx.from_pointer(ADDRESS, (2, 3), "float32", device="cuda:0", stream=stream)


def elements(tensor: dlx.Tensor) -> bytes:
    """The memory of a compact tensor of any dtype."""
    assert tensor.is_contiguous
    return ctypes.string_at(tensor.data_ptr, tensor.nbytes) if tensor.size else b""


def numbered(shape: Sequence[int], dtype: str) -> Array:
    """An array whose bytes count in a cycle that divides no extent."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.resize(np.arange(251, dtype="uint8"), size).view(dtype).reshape(shape)


def over(array: Array, dtype: str) -> dlx.Tensor:
    """An array as a tensor of a dtype of the same size, which NumPy need not have."""
    strides = [step // array.itemsize for step in array.strides]
    return dlx.from_pointer(
        array.ctypes.data, array.shape, dtype, strides=strides, owner=array
    )


SIZES = {
    "uint8": "V1",
    "bfloat16": "V2",
    "uint8x3": "V3",
    "float32": "V4",
    "int64": "V8",
    "float32x3": "V12",
    "complex128": "V16",
    "complex128x2": "V32",
}
"""A dtype of each size that is copied in its own way, and what NumPy calls it."""


@st.composite
def views(
    draw: st.DrawFn, shapes: st.SearchStrategy[tuple[int, ...]]
) -> tuple[str, Array]:
    """A dtype and an array permuted, sliced, reversed, broadcast."""
    name = draw(st.sampled_from(list(SIZES)))
    array = numbered(draw(shapes), SIZES[name])
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    steps = draw(st.tuples(*[st.sampled_from([1, 1, -1, 2, -3])] * array.ndim))
    slices: Any = [slice(None, None, step) for step in steps]
    array = array[(*slices, ...)]
    for axis in draw(st.lists(st.integers(0, array.ndim), max_size=2, unique=True)):
        array = np.expand_dims(array, axis)
        extents = list(array.shape)
        extents[axis] = draw(st.integers(1, 3))
        array = np.broadcast_to(array, extents)
    return name, array


small = views(st.lists(st.integers(0, 5), max_size=4).map(tuple))
beyond_a_tile = views(
    st.tuples(st.integers(65, 260), st.integers(1, 150), st.integers(1, 3))
)


@given(small)
@settings(max_examples=300)
def test_a_copy_of_any_layout_has_numpys_bytes(view: tuple[str, Array]) -> None:
    """R47, R59, R97 to R99: any strides, compared with `tobytes`."""
    name, array = view
    copied = over(array, name).to(copy=True)
    assert copied.shape == array.shape
    assert elements(copied) == array.tobytes()


@given(beyond_a_tile)
@settings(max_examples=60)
def test_a_copy_of_more_than_a_tile_has_numpys_bytes(view: tuple[str, Array]) -> None:
    """R47, R59: the copy turns blocks of 64 by 64."""
    name, array = view
    assert elements(over(array, name).to(copy=True)) == array.tobytes()


LARGE: dict[str, Callable[[], tuple[str, Array]]] = {
    "row-major": lambda: ("float32", numbered((5003, 2003), "V4")),
    "transposed": lambda: ("float32", numbered((2311, 2003), "V4").T),
    "bytes transposed": lambda: ("uint8", numbered((4801, 4003), "V1").T),
    "columns apart": lambda: ("float32", numbered((2203, 4007), "V4")[:, ::2]),
    "reversed": lambda: ("float32", numbered((2203, 2003), "V4")[::-1, ::-1]),
    "permuted": lambda: ("int64", numbered((127, 131, 137), "V8").transpose(1, 2, 0)),
    "narrow": lambda: ("int64", numbered((3, 700_001), "V8").T),
    "wide": lambda: ("complex128", numbered((1201, 1009), "V16").T),
    "odd": lambda: ("float32x3", numbered((1301, 1103), "V12").T),
    # Lines that are written whole, of more than caches hold: another order of tiles.
    "by columns": lambda: ("float32", numbered((2048, 4100), "V4").T),
    "twos": lambda: ("float32", numbered((2,) * 22, "V4").T),
    "broadcast": lambda: (
        "int8",
        np.broadcast_to(numbered((4801,), "V1"), (4003, 4801)),
    ),
}
"""More than 16 MiB each, from where on threads share the work."""


@pytest.mark.parametrize("layout", LARGE)
def test_a_copy_shared_by_threads_has_numpys_bytes(layout: str) -> None:
    """R47, R59: copies of 16 MiB and more are divided."""
    name, array = LARGE[layout]()
    assert array.nbytes >= 16 << 20
    assert elements(over(array, name).to(copy=True)) == array.tobytes()


@st.composite
def packed(draw: st.DrawFn) -> tuple[str, list[int], list[int], bytes, int]:
    """Dtype, shape, strides, memory and the byte of the first element."""
    name = draw(st.sampled_from(sorted(PACKED)))
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    steps = st.integers(-7, 7)
    strides = draw(st.lists(steps, min_size=len(shape), max_size=len(shape)))
    reach = [(n - 1) * step for n, step in zip(shape, strides, strict=True) if n]
    first = math.ceil(-sum(end for end in reach if end < 0) * PACKED[name] / 8)
    last = math.ceil((sum(end for end in reach if end > 0) + 1) * PACKED[name] / 8)
    return name, shape, strides, draw(st.randoms()).randbytes(first + last), first


PACKED = {"float4_e2m1fn": 4, "float6_e3m2fn": 6, "uint1": 1, "int3": 3, "int3x4": 12}
"""Bits of an element, all lanes together."""


@given(packed())
@settings(max_examples=300)
def test_a_copy_of_packed_elements_has_their_bits(
    case: tuple[str, list[int], list[int], bytes, int],
) -> None:
    """R107: element i is the bits from i * bits on, little-endian."""
    name, shape, strides, memory, first = case
    bits, whole = PACKED[name], int.from_bytes(memory, "little")
    expected = 0
    for to, position in enumerate(np.ndindex(*shape)):
        start = 8 * first + bits * int(np.dot(position, strides))
        expected |= (whole >> start & (1 << bits) - 1) << (to * bits)
    buffer = ctypes.create_string_buffer(memory, len(memory))
    address = ctypes.addressof(buffer) + first
    tensor = dlx.from_pointer(address, shape, name, strides=strides, owner=buffer)
    copied = tensor.to(copy=True)
    found = int.from_bytes(elements(copied), "little") & (1 << tensor.size * bits) - 1
    assert copied.nbytes == math.ceil(tensor.size * bits / 8)
    assert f"{found:b}" == f"{expected:b}"


def test_a_copy_of_padded_elements_stays_padded() -> None:
    """R44: a byte each."""
    producer = Producer(
        memory=bytearray(range(12)),
        dtype=(17, 4, 1),
        strides=(1, 2),
        flags=DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    )
    copied = dlx.from_dlpack(producer, copy=True)
    assert (elements(copied), copied.nbytes) == (bytes([0, 2, 4, 1, 3, 5]), 6)
    assert repr(copied) == "dlx.Tensor(float4_e2m1fn[2, 3], cpu, copied, padded)"


@given(small)
def test_a_copy_is_aligned_row_major_and_says_that_it_is_one(
    view: tuple[str, Array],
) -> None:
    """R37, R89, R96: at a multiple of 256, NULL without elements."""
    name, array = view
    copied = over(array, name).to(copy=True)
    assert copied.data_ptr % 256 == 0
    assert copied.strides == tuple(row_major([max(n, 1) for n in array.shape]))
    assert copied.is_copied
    assert (copied.data_ptr == 0) == (array.size == 0)


def test_a_copy_and_its_source_share_nothing() -> None:
    """R47, R59: a write to either leaves the other."""
    source = np.arange(6.0).reshape(2, 3)
    copied = np.asarray(dlx.from_dlpack(source.T, copy=True))
    source[0, 1], copied[0, 0] = 70, 80
    assert copied.tolist() == [[80, 3], [1, 4], [2, 5]]
    assert source.tolist() == [[0, 70, 2], [3, 4, 5]]


def test_a_copy_outlives_its_source() -> None:
    """R8, R15, R59: the source's deleter runs before the copy is returned."""
    producer = Producer()
    copied = dlx.from_dlpack(producer, copy=True)
    assert producer.deleted == 1
    assert np.asarray(copied).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_copy_of_read_only_memory_may_be_written() -> None:
    """R59: the result may be mutated."""
    copied = dlx.from_dlpack(np.broadcast_to(np.int8(7), (2, 2)), copy=True)
    assert not copied.readonly
    np.asarray(copied)[0, 0] = 1
    assert np.asarray(copied).tolist() == [[1, 7], [7, 7]]


def test_an_old_producers_tensor_is_copied_too() -> None:
    """R33: its `__dlpack__` knows no `copy`."""
    producer = OldProducer()
    copied = dlx.from_dlpack(producer, copy=True)
    assert copied.data_ptr != producer.tensor.data
    assert np.asarray(copied).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_copy_larger_than_memory_is_a_memory_error() -> None:
    """R109: a broadcast is small, its copy is not."""
    with pytest.raises(MemoryError, match=str(2**62)):
        dlx.from_dlpack(np.broadcast_to(np.int8(7), 2**62), copy=True)


@every_holder
@pytest.mark.parametrize(
    ("copy", "shares"), [(None, True), (False, True), (True, False)]
)
@pytest.mark.parametrize("of_a_copy", [False, True])
def test_an_export_is_marked_copied_only_if_it_copied(
    make: Maker, copy: bool | None, shares: bool, of_a_copy: bool
) -> None:
    """R37, R38: a dlx copy exported again is shared with its dlx.Tensor."""
    tensor = dlx.from_dlpack(np.arange(3), copy=of_a_copy or None)
    managed = exported(make(tensor), copy=copy)
    assert (managed.dl_tensor.data == tensor.data_ptr) is shares
    assert bool(managed.flags & DLPACK_FLAG_BITMASK_IS_COPIED) is not shares


@every_producer
@pytest.mark.parametrize("copy", [None, False])
def test_an_export_of_shared_memory_is_not_marked_copied(
    make: Maker, copy: bool | None
) -> None:
    """R38, R48, R49: with `copy` None or False."""
    source = Producer()
    managed = exported(make(source), copy=copy)
    assert (managed.dl_tensor.data, managed.flags) == (source.data, 0)


@every_holder
def test_an_export_through_the_table_is_not_marked_copied(make: Maker) -> None:
    """R38: not even if the tensor itself was a copy."""
    producer = make(dlx.from_dlpack(np.arange(3), copy=True))
    managed = from_table(table_of(type(producer)), producer)
    flags = managed.flags
    delete(managed)
    assert flags == 0


@every_producer
def test_numpy_gets_a_copy_of_its_own(make: Maker) -> None:
    """R47: through NumPy's `from_dlpack`."""
    source = np.arange(6).reshape(2, 3).T
    copied = np.from_dlpack(make(source), copy=True)
    copied[0, 0] = 9
    assert source.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_copy_false_shares() -> None:
    """R48: at the address of the array."""
    array = np.arange(3)
    assert dlx.from_dlpack(array, copy=False).data_ptr == array.ctypes.data


def test_copy_false_refuses_a_producer_that_copies() -> None:
    """R58: as both errors that the standard names."""
    producer = Producer(flags=DLPACK_FLAG_BITMASK_IS_COPIED)
    with pytest.raises(dlx.CopyRefused) as refused:
        dlx.from_dlpack(producer, copy=False)
    assert isinstance(refused.value, BufferError)
    assert isinstance(refused.value, ValueError)
    assert producer.deleted == 1


AGAIN = [dlx.Tensor.to, dlx.from_dlpack]


@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("device", [None, "cuda:0", (2, 0), dlx.Device("cuda:0")])
@pytest.mark.parametrize("again", AGAIN)
def test_a_tensor_that_need_not_change_is_given_back(
    again: Any, device: Any, copy: bool | None
) -> None:
    """R49, R53: `to` and `from_dlpack` return the same object."""
    tensor = cuda()
    assert again(tensor, device=device, copy=copy) is tensor


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"device": "cpu"}, BufferError),
        ({"device": "cuda:1"}, BufferError),
        ({"device": "cpu", "copy": False}, dlx.CopyRefused),
        ({"copy": True}, BufferError),
        ({"device": "gpu"}, ValueError),
        ({"device": 1.5}, TypeError),
        ({"copy": "yes"}, TypeError),
    ],
)
def test_what_dlx_cannot_do_to_a_tensor_is_refused(
    again: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    """R57, R58: moves without a driver, and arguments that mean nothing."""
    with pytest.raises(error):
        again(cuda(), **options)


@pytest.mark.parametrize("stream", [0, 1, 7])
def test_from_dlpack_of_a_cpu_tensor_takes_no_stream(stream: int) -> None:
    """R70, R71: neither a default stream nor a handle."""
    with pytest.raises(BufferError, match="no streams"):
        dlx.from_dlpack(over(np.zeros(2), "float64"), stream=stream)


def test_from_dlpack_of_a_tensor_does_not_reorder_streams() -> None:
    """R80: what is ready on stream 9 is not ready on stream 2."""
    tensor = cuda(stream=9)
    with pytest.raises(BufferError, match="stream 9"):
        dlx.from_dlpack(tensor, stream=2)
