"""`dlx.Tensor.__cuda_array_interface__`, of fake memory that is never read."""

from __future__ import annotations

from typing import Any

import dlx
import pytest
from support.fake_producers import ADDRESS, Producer

CUDA, MANAGED = (2, 0), (13, 0)
HANDLE = 0x7F12_3456_7890


def tensor(**keywords: Any) -> dlx.Tensor:
    """A tensor on a GPU that need not be there."""
    keywords = {"shape": (2, 3), "dtype": "float32", "device": "cuda:0"} | keywords
    return dlx.from_pointer(ADDRESS, **keywords)


def test_the_interface_is_of_version_3() -> None:
    """R152: all its entries, of a contiguous tensor."""
    assert tensor().__cuda_array_interface__ == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f4",
        "strides": None,
        "data": (ADDRESS, False),
        "stream": None,
    }


@pytest.mark.parametrize(
    ("dtype", "typestr"),
    [
        ("bool", "|b1"),
        ("int8", "|i1"),
        ("uint8", "|u1"),
        ("int64", "<i8"),
        ("uint16", "<u2"),
        ("float16", "<f2"),
        ("float64", "<f8"),
        ("complex64", "<c8"),
        ("complex128", "<c16"),
    ],
)
def test_a_dtype_has_the_name_of_numpy(dtype: str, typestr: str) -> None:
    """CAI: `typestr`."""
    assert tensor(dtype=dtype).__cuda_array_interface__["typestr"] == typestr


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32x4", "int4"])
def test_a_dtype_without_a_name_is_a_buffer_error(dtype: str) -> None:
    """R63: the tensor goes by DLPack."""
    with pytest.raises(BufferError, match=dtype):
        _ = tensor(dtype=dtype).__cuda_array_interface__


@pytest.mark.parametrize(
    ("strides", "expected"),
    [((3, 1), None), ((1, 2), (4, 8)), ((6, 2), (24, 8)), ((-3, 1), (-12, 4))],
)
def test_strides_are_in_bytes_or_absent(strides: Any, expected: Any) -> None:
    """CAI: None for row-major."""
    assert tensor(strides=strides).__cuda_array_interface__["strides"] == expected


def test_no_elements_are_at_address_0() -> None:
    """R152: whatever address the tensor was given."""
    assert tensor(shape=(0, 3)).__cuda_array_interface__["data"] == (0, False)


def test_no_dimensions_are_an_empty_shape() -> None:
    """CAI: one element."""
    interface = tensor(shape=()).__cuda_array_interface__
    assert (interface["shape"], interface["strides"]) == ((), None)


def test_the_offset_is_in_the_address() -> None:
    """R95: the interface has no entry for it."""
    producer = Producer(device=CUDA, byte_offset=8)
    data, _ = dlx.from_dlpack(producer).__cuda_array_interface__["data"]
    assert data == (producer.data or 0) + 8


def test_read_only_memory_says_so() -> None:
    """R39: the second of "data" is True."""
    assert tensor(readonly=True).__cuda_array_interface__["data"] == (ADDRESS, True)


@pytest.mark.parametrize(
    ("imported", "expected"),
    [(None, 1), (1, 1), (2, 2), (HANDLE, HANDLE), (-1, None)],
)
def test_the_stream_is_the_one_that_the_elements_are_ready_on(
    imported: int | None, expected: int | None
) -> None:
    """R148, R149: None where nobody has to wait; never 0."""
    imported_tensor = dlx.from_dlpack(Producer(device=CUDA), stream=imported)
    assert imported_tensor.__cuda_array_interface__["stream"] == expected


@pytest.mark.parametrize("device", [CUDA, (2, 3), MANAGED])
def test_cuda_memory_of_any_device_has_the_interface(device: tuple[int, int]) -> None:
    """CAI: also managed memory."""
    assert hasattr(dlx.from_dlpack(Producer(device=device)), "__cuda_array_interface__")


@pytest.mark.parametrize("device", [(1, 0), (3, 0), (10, 0), (4, 0), (14, 0)])
def test_other_memory_has_none(device: tuple[int, int]) -> None:
    """`hasattr` is false: consumers ask this way."""
    x = dlx.from_dlpack(Producer(device=device))
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        _ = x.__cuda_array_interface__
