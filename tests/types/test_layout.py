"""Shapes, strides and addresses: what comes in, what is refused, what goes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dlpack_abi import exported
from support.fake_producers import Producer

BIG = 2**62
MIN, MAX = -(2**63), 2**63 - 1


def imported(**fields: Any) -> dlx.Tensor:
    """Import a tensor whose fields are what the test says."""
    return dlx.from_dlpack(Producer(**fields).capsule())


def values(tensor: dlx.Tensor) -> Any:
    """Return the elements as nested lists."""
    return tensor.numpy().tolist()


# Number of dimensions, extents and strides.


@pytest.mark.parametrize("ndim", [-1, -(2**31), 65, 2**31 - 1])
def test_a_number_of_dimensions_out_of_range_is_refused(ndim: int) -> None:
    """R88: without a look at the dimensions, of which there are none."""
    with pytest.raises(BufferError, match=r"ndim|dimensions"):
        imported(shape=(), ndim=ndim)


def test_64_dimensions_are_accepted_and_exported() -> None:
    """R88: as many as a Python buffer may have."""
    tensor = imported(shape=(1,) * 64)
    assert dlx.from_dlpack(tensor.__dlpack__()).shape == (1,) * 64


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (0, -1), (MIN,), (BIG, -BIG)])
def test_a_negative_extent_is_refused(shape: tuple[int, ...]) -> None:
    """R88: in any dimension."""
    with pytest.raises(BufferError, match="negative"):
        imported(shape=shape, strides=(0,) * len(shape))


@pytest.mark.parametrize(
    "shape", [(BIG,), (MAX,), (BIG, 2), (2**32, 2**32), (BIG, BIG, BIG), (3, MAX)]
)
@pytest.mark.parametrize("strides", [None, 0])
def test_elements_that_fit_into_no_address_space_are_refused(
    shape: tuple[int, ...], strides: int | None
) -> None:
    """R109: also those that stride 0 puts in one place."""
    given_strides = None if strides is None else (strides,) * len(shape)
    with pytest.raises(BufferError, match="address space"):
        imported(shape=shape, strides=given_strides)


def test_elements_that_fit_with_stride_0_are_accepted() -> None:
    """R98, R109: the limit is bytes, not what somebody would allocate."""
    tensor = imported(shape=(2**60,), strides=(0,), dtype=(1, 8, 1))
    assert (tensor.size, tensor.nbytes) == (2**60, 2**60)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2,), (MAX,)),
        ((2,), (MIN,)),
        ((2,), (2**61,)),
        ((3, 3), (2**60, 2**60)),
        ((BIG // 4,), (8,)),
        ((2, 2), (-(2**60), -(2**60) - 1)),
    ],
)
def test_strides_that_leave_the_address_space_are_refused(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """R109: products and sums that overflow."""
    with pytest.raises(BufferError, match="spans more bytes"):
        imported(shape=shape, strides=strides)


@pytest.mark.parametrize("strides", [None, ...])
def test_a_null_shape_with_dimensions_is_refused(strides: Any) -> None:
    """R88: with or without strides."""
    with pytest.raises(BufferError, match="shape is NULL"):
        imported(shape=None, ndim=2, strides=strides)


@pytest.mark.parametrize("version", [(1, 0), (1, 1), (1, 3), None])
def test_null_strides_mean_compact_row_major(version: tuple[int, int] | None) -> None:
    """R90: None stands for the unversioned struct."""
    producer = Producer(shape=(2, 3, 4), strides=None, version=version or (1, 3))
    tensor = dlx.from_dlpack(producer.capsule(versioned=version is not None))
    assert tensor.strides == (12, 4, 1)


@pytest.mark.parametrize("shape", [None, ()])
@pytest.mark.parametrize("strides", [None, ()])
def test_0_dimensions_need_neither_shape_nor_strides(shape: Any, strides: Any) -> None:
    """R91: both may be NULL, or not."""
    tensor = imported(shape=shape, strides=strides, byte_offset=4)
    assert (tensor.shape, tensor.strides, tensor.size) == ((), (), 1)
    assert values(tensor) == 1.0


@pytest.mark.parametrize("stride", [0, 1, -7, BIG, MIN, MAX])
def test_the_stride_of_a_dimension_of_extent_1_means_nothing(stride: int) -> None:
    """R99: the tensor counts as contiguous."""
    tensor = imported(shape=(1, 3), strides=(stride, 1))
    assert tensor.is_contiguous
    assert values(tensor) == [[0, 1, 2]]


@pytest.mark.parametrize("data", [None, 0, 1])
@pytest.mark.parametrize("stride", [0, -7, BIG, MIN, MAX])
def test_a_tensor_without_elements_needs_neither_memory_nor_strides(
    data: int | None, stride: int
) -> None:
    """R94, R99: the deleter is called all the same."""
    producer = Producer(data=data, shape=(3, 0), strides=(stride, stride))
    tensor = dlx.from_dlpack(producer)
    assert (tensor.size, tensor.nbytes, tensor.data_ptr) == (0, 0, 0)
    assert tensor.numpy().shape == (3, 0)
    del tensor
    assert producer.deleted == 1


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("byte_offset", [0, 8])
def test_null_with_elements_is_refused(
    shape: tuple[int, ...], byte_offset: int
) -> None:
    """R111: whatever is added to NULL."""
    with pytest.raises(BufferError, match="NULL"):
        imported(data=0, shape=shape, byte_offset=byte_offset)


@pytest.mark.parametrize(
    ("shape", "strides", "first", "expected"),
    [
        ((4,), (-1,), 3, [3, 2, 1, 0]),
        ((2, 3), (-3, 1), 3, [[3, 4, 5], [0, 1, 2]]),
        ((2, 3), (-3, -1), 5, [[5, 4, 3], [2, 1, 0]]),
        ((2, 3), (0, 1), 0, [[0, 1, 2], [0, 1, 2]]),
        ((2, 2), (0, 0), 7, [[7, 7], [7, 7]]),
        ((3, 2), (1, 3), 0, [[0, 3], [1, 4], [2, 5]]),
        ((3, 2), (1, 1), 0, [[0, 1], [1, 2], [2, 3]]),
    ],
)
@pytest.mark.parametrize("copy", [None, True])
def test_strides_of_any_sign_lead_to_their_elements(
    shape: Sequence[int], strides: Any, first: int, expected: Any, copy: bool | None
) -> None:
    """R97, R98: in place and in a copy."""
    producer = Producer(shape=shape, strides=strides, byte_offset=4 * first)
    assert values(dlx.from_dlpack(producer, copy=copy)) == expected


# The address.


def test_the_first_element_is_at_data_plus_byte_offset() -> None:
    """R95: in the address and in the values."""
    producer = Producer(shape=(3,), byte_offset=8)
    tensor = dlx.from_dlpack(producer)
    assert tensor.data_ptr == (producer.data or 0) + 8
    assert values(tensor) == [2, 3, 4]


@pytest.mark.parametrize("data", [None, 2**64 - 4])
def test_an_offset_beyond_the_address_space_is_refused(data: int | None) -> None:
    """R95, R109: the sum overflows."""
    with pytest.raises(BufferError, match="not an address"):
        imported(data=data, byte_offset=2**64 - 4)


@pytest.mark.parametrize("device", [(4, 0), (7, 0), (8, 0), (15, 0)])
def test_the_offset_into_a_buffer_handle_stays_apart(device: tuple[int, int]) -> None:
    """R95: OpenCL, Vulkan, Metal and WebGPU name memory by handles."""
    tensor = imported(device=device, data=0x1234, byte_offset=8)
    out = exported(tensor).dl_tensor
    assert (out.data, out.byte_offset) == (0x1234, 8)


@pytest.mark.parametrize("copy", [None, True])
def test_data_at_an_odd_address_is_read(copy: bool | None) -> None:
    """R96: nothing relies on alignment."""
    memory = bytearray(b"\0" + np.arange(6, dtype="f8").tobytes())
    producer = Producer(memory=memory, byte_offset=1, shape=(3, 2), dtype=(2, 64, 1))
    tensor = dlx.from_dlpack(producer, copy=copy)
    assert values(tensor) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("byte_offset", [0, 20])
def test_a_copy_is_aligned_to_256_bytes(byte_offset: int) -> None:
    """R96: as dlpack.h wants it."""
    tensor = imported(byte_offset=byte_offset)
    address = exported(tensor, copy=True).dl_tensor.data
    assert address is not None
    assert address % 256 == 0


# Exports.


@pytest.mark.parametrize("max_version", [None, (1, 3)])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("shape", [(1,), (6,), (2, 3), (0,), (3, 0)])
def test_an_export_always_has_strides(
    shape: tuple[int, ...], copy: bool | None, max_version: tuple[int, int] | None
) -> None:
    """R89: also where the producer left them out."""
    tensor = imported(shape=shape, strides=None)
    assert exported(tensor, copy=copy, max_version=max_version).dl_tensor.strides


@pytest.mark.parametrize("copy", [None, True])
def test_an_export_without_elements_has_null_data(copy: bool | None) -> None:
    """R93: though the producer had an address."""
    assert exported(imported(shape=(2, 0)), copy=copy).dl_tensor.data is None


def test_an_export_starts_at_the_first_element() -> None:
    """R95: the offset was added on import."""
    producer = Producer(byte_offset=8)
    out = exported(dlx.from_dlpack(producer)).dl_tensor
    assert (out.data, out.byte_offset) == ((producer.data or 0) + 8, 0)


def test_dimensions_are_copied_on_import() -> None:
    """R100: torch's point into the live tensor, which may get others."""
    producer = Producer()
    tensor = dlx.from_dlpack(producer)
    producer.tensor.shape[0] = producer.tensor.strides[0] = 99
    assert (tensor.shape, tensor.strides) == ((2, 3), (3, 1))


# Anything at all.


@given(
    dimensions=st.lists(
        st.tuples(
            st.sampled_from([-1, 0, 1, 2, 3, 2**31, BIG, MAX]) | st.integers(MIN, MAX),
            st.sampled_from([0, 1, -1, 2**31, BIG, MIN, MAX]) | st.integers(MIN, MAX),
        ),
        max_size=66,
    ),
    data=st.sampled_from([None, 0]),
    byte_offset=st.sampled_from([0, 4, 2**64 - 1]),
    dtype=st.tuples(st.integers(0, 20), st.integers(0, 255), st.integers(0, 3)),
    strided=st.booleans(),
)
def test_whatever_the_fields_say_is_taken_literally_or_refused(
    dimensions: list[tuple[int, int]], strided: bool, **fields: Any
) -> None:
    """R88 to R111: never a crash, and one call of the deleter either way."""
    shape = tuple(extent for extent, _ in dimensions)
    strides = tuple(stride for _, stride in dimensions)
    producer = Producer(shape=shape, strides=strides if strided else None, **fields)
    try:
        tensor = dlx.from_dlpack(producer)
    except BufferError:
        assert producer.deleted == 1
        return
    assert tensor.shape == shape
    assert not strided or tensor.strides == strides
    assert tensor.size == math.prod(shape)
    assert (tensor.data_ptr == 0) is (0 in shape)
    del tensor
    assert producer.deleted == 1


@pytest.mark.parametrize("device", [(1, 0), (8, 0)])
def test_a_tensor_without_elements_is_exported_without_an_offset(
    device: tuple[int, int],
) -> None:
    """R93, R95: there is nothing that it could be the offset of."""
    producer = Producer(shape=(0,), data=0, byte_offset=8, device=device)
    tensor = exported(dlx.from_dlpack(producer)).dl_tensor
    assert (tensor.data, tensor.byte_offset) == (None, 0)
