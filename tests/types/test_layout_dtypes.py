"""The dtype field: what is accepted, what is refused, and how much memory it means."""

from __future__ import annotations

from ctypes import string_at

import dlx
import pytest
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    capsule_name,
    exported,
)
from support.fake_producers import Producer

PADDED = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
FP6, FP4 = (15, 6, 1), (17, 4, 1)

NAMES = {
    (0, 8, 1): "int8",
    (0, 64, 1): "int64",
    (1, 16, 1): "uint16",
    (2, 16, 1): "float16",
    (2, 64, 1): "float64",
    (3, 64, 1): "handle64",
    (4, 16, 1): "bfloat16",
    (5, 32, 1): "complex32",
    (5, 64, 1): "complex64",
    (5, 128, 1): "complex128",
    (6, 8, 1): "bool",
    (7, 8, 1): "float8_e3m4",
    (8, 8, 1): "float8_e4m3",
    (9, 8, 1): "float8_e4m3b11fnuz",
    (10, 8, 1): "float8_e4m3fn",
    (11, 8, 1): "float8_e4m3fnuz",
    (12, 8, 1): "float8_e5m2",
    (13, 8, 1): "float8_e5m2fnuz",
    (14, 8, 1): "float8_e8m0fnu",
    (15, 6, 1): "float6_e2m3fn",
    (16, 6, 1): "float6_e3m2fn",
    (17, 4, 1): "float4_e2m1fn",
    (17, 4, 2): "float4_e2m1fnx2",
    (2, 32, 4): "float32x4",
    (1, 8, 2**16 - 1): "uint8x65535",
}

REFUSED = {
    **dict.fromkeys((0, 1), (0, 9, 24, 128, 255)),
    2: (0, 8, 15, 80, 128),
    3: (0, 7, 128),
    4: (0, 8, 32),
    5: (0, 16, 192),
    6: (0, 1, 7, 16),
    **dict.fromkeys(range(7, 15), (0, 4, 7, 16)),
    **dict.fromkeys((15, 16), (0, 4, 8)),
    17: (0, 6, 8),
}
"""Bits that are wrong, by dtype code."""


@pytest.mark.parametrize(("dtype", "name"), NAMES.items(), ids=NAMES.values())
def test_every_dtype_comes_in_under_its_name(
    dtype: tuple[int, int, int], name: str
) -> None:
    """R102 to R106, R108: all 18 codes of DLPack 1.3, lanes too."""
    assert dlx.from_dlpack(Producer(dtype=dtype, shape=(2,))).dtype == name


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.values())
def test_every_dtype_goes_out_as_it_came_in(dtype: tuple[int, int, int]) -> None:
    """R102 to R106, R108: code, bits and lanes."""
    found = exported(dlx.from_dlpack(Producer(dtype=dtype, shape=(2,)))).dl_tensor.dtype
    assert (found.code, found.bits, found.lanes) == dtype


@pytest.mark.parametrize(
    ("code", "bits"),
    [(code, bits) for code, widths in REFUSED.items() for bits in widths],
)
@pytest.mark.parametrize("lanes", [1, 2])
def test_bits_that_a_code_does_not_have_are_refused(
    code: int, bits: int, lanes: int
) -> None:
    """R31, R103 to R106: bool is 8 bits, fp8 8, fp6 6, fp4 4."""
    with pytest.raises(BufferError, match=f"has {bits} bits"):
        dlx.from_dlpack(Producer(dtype=(code, bits, lanes)))


@pytest.mark.parametrize("dtype", [(2, 32, 0), (0, 8, 0), (17, 4, 0)])
def test_no_lanes_are_refused(dtype: tuple[int, int, int]) -> None:
    """R102, R108: 0 lanes of any dtype."""
    with pytest.raises(BufferError, match="0 lanes"):
        dlx.from_dlpack(Producer(dtype=dtype))


@pytest.mark.parametrize("device_type", [-(2**31), -1, 0, 5, 6])
def test_a_device_type_that_no_dlpack_defines_is_refused(device_type: int) -> None:
    """R31: in the struct, where there is no `__dlpack_device__` to ask."""
    with pytest.raises(BufferError, match=f"device type {device_type} is not defined"):
        dlx.from_dlpack(Producer(device=(device_type, 0)).capsule())


@pytest.mark.parametrize("device_type", dlx.DeviceType)
def test_a_device_id_below_0_is_refused(device_type: int) -> None:
    """R31, R66: of any device type."""
    with pytest.raises(BufferError, match="device id -1"):
        dlx.from_dlpack(Producer(device=(device_type, -1)).capsule())


@pytest.mark.parametrize(
    ("dtype", "flags", "count", "nbytes"),
    [
        (FP4, 0, 2, 1),
        (FP4, 0, 3, 2),
        (FP4, PADDED, 3, 3),
        (FP6, 0, 3, 3),
        (FP6, 0, 4, 3),
        (FP6, PADDED, 4, 4),
        ((17, 4, 2), 0, 3, 3),
        ((1, 1, 1), 0, 9, 2),
        ((1, 1, 1), PADDED, 9, 9),
        ((2, 32, 4), 0, 3, 48),
        ((5, 64, 1), 0, 3, 24),
    ],
)
def test_packed_elements_are_counted_in_bits(
    dtype: tuple[int, int, int], flags: int, count: int, nbytes: int
) -> None:
    """R104, R110: rounded up once, over all elements; padded ones fill whole bytes."""
    tensor = dlx.from_dlpack(Producer(dtype=dtype, flags=flags, shape=(count,)))
    assert tensor.nbytes == nbytes


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_packed_elements_are_little_endian(bits: int, step: int) -> None:
    """R107: element i is at `D >> (i * bits)`, as the compact copy shows."""
    memory = bytearray([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE])
    source, count = int.from_bytes(memory, "little"), 64 // bits // step
    elements = [source >> i * step * bits & (1 << bits) - 1 for i in range(count)]
    producer = Producer(
        memory=memory, dtype=(1, bits, 1), shape=(count,), strides=(step,)
    )
    tensor = dlx.from_dlpack(producer, copy=True)
    copied = int.from_bytes(string_at(tensor.data_ptr, tensor.nbytes), "little")
    found = [copied >> i * bits & (1 << bits) - 1 for i in range(count)]
    assert found == elements


@pytest.mark.parametrize("copy", [None, True])
def test_the_padded_flag_travels_with_the_elements(copy: bool | None) -> None:
    """R44: through a view and through a copy."""
    tensor = dlx.from_dlpack(Producer(dtype=FP4, flags=PADDED), copy=copy)
    assert exported(tensor).flags & PADDED


def test_packed_is_the_default() -> None:
    """R44: fp4 without the flag goes out without it."""
    assert not exported(dlx.from_dlpack(Producer(dtype=FP4))).flags & PADDED


@pytest.mark.parametrize("copy", [None, True])
def test_padded_elements_do_not_go_into_a_legacy_capsule(copy: bool | None) -> None:
    """R45: it has no flag, so they would be read as packed."""
    tensor = dlx.from_dlpack(Producer(dtype=FP4, flags=PADDED))
    with pytest.raises(BufferError, match="padded"):
        tensor.__dlpack__(copy=copy)


def test_only_sub_byte_elements_are_exported_as_padded() -> None:
    """R44: what a producer says of float32 means nothing, and does not go on."""
    tensor = dlx.from_dlpack(Producer(flags=PADDED))
    assert not exported(tensor).flags & PADDED


@pytest.mark.parametrize("dtype", [(0, 8, 1), (6, 8, 1), (10, 8, 1), (2, 32, 1)])
def test_elements_of_whole_bytes_are_never_padded(dtype: tuple[int, int, int]) -> None:
    """R45: the flag is about smaller ones; an unversioned capsule can carry these."""
    producer = Producer(dtype=dtype, flags=DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    tensor = dlx.from_dlpack(producer)
    managed = exported(tensor)
    assert managed.flags == 0
    assert capsule_name(tensor.__dlpack__()) == b"dltensor"
