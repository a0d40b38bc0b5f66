"""What `dlpack_exchange.h` refuses, of any producer and for what a function wants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fake_producers import Producer, row_major
from support.fake_table import not_called, table_class

FLOAT32 = (2, 32, 1)
WRITE, ROW_MAJOR, NDIM, UNALIGNED = 1, 2, 4, 32
BIG = 1 << 62

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "negative-ndim": ({"ndim": -1}, "it has -1 dimensions"),
    "no-shape": ({"shape": None, "ndim": 2}, "it has 2 dimensions without a shape"),
    "negative-extent": ({"shape": (2, -3)}, "extent 1 is negative: -3"),
    "large-shape": ({"shape": (BIG, BIG), "strides": (0, 0)}, "reach beyond"),
    "large-product": ({"shape": ((1 << 31) - 1,) * 3}, "reach beyond"),
    "large-stride": ({"shape": (3, 3), "strides": (BIG, 1)}, "reach beyond"),
    "large-down": ({"shape": (3, 3), "strides": (-BIG, -BIG)}, "reach beyond"),
    "large-in-bits": ({"shape": (1 << 58,)}, "reach beyond"),
    "null": ({"data": 0}, "it has elements, and no memory: data is "),
    "nearly-null": ({"data": 0, "byte_offset": 16}, "no memory: data is 0x10"),
    "next-to-null": ({"data": 16}, "no memory: data is 0x10"),
    "far-from-null": ({"data": 0, "byte_offset": 8192}, "no memory: data is 0x2000"),
    "beyond-the-last-address": (
        {"data": (1 << 64) - 4096, "byte_offset": 1 << 20},
        "no memory: data is 0xff000",
    ),
    "no-bits": ({"dtype": (2, 0, 1)}, "dtype code 2 has 0 bits and 1 lanes"),
    "no-lanes": ({"dtype": (2, 32, 0)}, "dtype code 2 has 32 bits and 0 lanes"),
    "float8": ({"dtype": (10, 16, 1)}, "dtype code 10 has 16 bits"),
    "float6": ({"dtype": (15, 8, 1)}, "dtype code 15 has 8 bits"),
    "float4": ({"dtype": (17, 8, 1)}, "dtype code 17 has 8 bits"),
}


@pytest.mark.parametrize("fake", ["method", "table"])
@pytest.mark.parametrize("bad", BAD)
def test_a_wrong_description_is_refused(image: Any, bad: str, fake: str) -> None:
    """R88, R105, R106, R109, R111: nothing is leaked, however it came."""
    fields, text = BAD[bad]
    producer = (table_class() if fake == "table" else Producer)(**fields)
    for look in (image.look, lambda x: image.look(x, WRITE)):
        with pytest.raises(BufferError, match=f"^x: .*{text}"):
            look(producer)
    with pytest.raises(BufferError, match=text):
        image.import_like(producer, None)
    assert producer.deleted == len(producer.exports) > 0


@pytest.mark.parametrize(
    ("flags", "text"),
    [(8, "flags 0x8 are not of DLPack 1.3"), (4, "elements are padded to bytes")],
)
def test_flags_that_change_what_elements_are_are_refused(
    image: Any, flags: int, text: str
) -> None:
    """R45, R46."""
    producer = Producer(flags=flags)
    with pytest.raises(BufferError, match=text):
        image.look(producer)
    assert producer.deleted == 1


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (0, 1 << 31, 1 << 31)])
def test_an_empty_tensor_needs_no_memory(image: Any, shape: tuple[int, ...]) -> None:
    """R93, R99: nor do its strides mean anything."""
    for strides in ([BIG] * len(shape), None, row_major(shape)):
        producer = Producer(shape=shape, data=0, strides=strides)
        assert image.look(producer, ROW_MAJOR)[1] == shape


@pytest.mark.parametrize("shape", [(1 << 20, 1 << 15), (1 << 40,), (2, 1, 1 << 33)])
def test_a_tensor_of_more_than_two_to_the_31_elements_is_taken(
    image: Any, shape: tuple[int, ...]
) -> None:
    """R109: what is far from the limits of addresses is no overflow."""
    producer = Producer(shape=shape, dtype=(1, 8, 1))
    found = image.look(producer, ROW_MAJOR)
    assert (found[1], found[2]) == (shape, tuple(row_major(shape)))
    found = image.look(Producer(shape=shape[::-1], strides=row_major(shape)[::-1]))
    assert found[-2] == (len(shape) == 1)


def test_strides_that_are_left_out_are_row_major(image: Any) -> None:
    """R90."""
    assert image.look(Producer(strides=None))[2] == (3, 1)


def test_strides_of_extents_of_one_mean_nothing(image: Any) -> None:
    """R99."""
    assert image.look(Producer(shape=(1, 3), strides=(7, 1)), ROW_MAJOR)[6]


def test_more_dimensions_than_fit_into_a_view_are_taken(image: Any) -> None:
    """Up to 64 of NumPy, and more."""
    producer = Producer(shape=(1,) * 99 + (2,))
    assert image.look(producer)[1] == (1,) * 99 + (2,)


def test_the_offset_is_in_the_address(image: Any) -> None:
    """The first element is at `data`."""
    producer = Producer(byte_offset=8)
    assert image.look(producer)[0] == producer.tensor.data + 8


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "dtype": (
        {"dtype": (2, 64, 1)},
        {"dtype": FLOAT32},
        TypeError,
        "dtype is float64, expected is float32",
    ),
    "ndim": (
        {},
        {"flags": NDIM, "ndim": 1},
        TypeError,
        "it has 2 dimensions, expected are 1",
    ),
    "device": (
        {"device": (2, 1)},
        {"device": 1},
        BufferError,
        "it is on cuda:1, expected is cpu",
    ),
    "row-major": (
        {"strides": (8, 2)},
        {"flags": ROW_MAJOR},
        BufferError,
        "it is not row-major: dimension 1 has a stride of 2 elements, expected are 1",
    ),
    "aligned": (
        {"byte_offset": 2},
        {"dtype": FLOAT32},
        BufferError,
        "is not aligned to 4 bytes",
    ),
    "read-only": (
        {"flags": 1},
        {"flags": WRITE},
        BufferError,
        "it is read-only, and is written to",
    ),
    "copied": (
        {"flags": 2},
        {"flags": WRITE},
        BufferError,
        "it is a copy, and is written to",
    ),
    "repeated": (
        {"strides": (0, 1)},
        {"flags": WRITE},
        BufferError,
        r"it repeats elements \(a stride is 0\), and is written to",
    ),
    "unversioned": (
        {"versioned": False},
        {"flags": WRITE},
        BufferError,
        "it came in an unversioned capsule, which cannot say that it may be written to",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_function_does_not_want_is_refused(image: Any, wrong: str) -> None:
    """R31, R41, R42, R43: the text says what was found, and what is expected."""
    fields, wants, error, text = WRONG[wrong]
    producer = Producer(**fields)
    with pytest.raises(error, match=f"^x: .*{text}$"):
        image.look(producer, **wants)
    image.look(producer)
    assert producer.deleted == 2


@pytest.mark.parametrize(
    ("fields", "wants"),
    [
        ({"device": (3, 0)}, {"device": 1}),
        ({"device": (13, 0)}, {"device": 2}),
        ({"byte_offset": 2}, {"dtype": FLOAT32, "flags": UNALIGNED}),
        ({"byte_offset": 4, "dtype": (5, 64, 1)}, {"dtype": (5, 64, 1)}),
        ({}, {"dtype": FLOAT32, "flags": WRITE | ROW_MAJOR | NDIM, "ndim": 2}),
    ],
    ids=["pinned", "managed", "unaligned", "complex", "all"],
)
def test_what_a_function_wants_is_taken(
    image: Any, fields: dict[str, Any], wants: dict[str, Any]
) -> None:
    """Pinned memory is the CPU's, managed memory CUDA's."""
    image.look(Producer(**fields), **wants)


def test_a_lent_tensor_is_read_only_unless_writing_was_asked_for(image: Any) -> None:
    """R42: a table lends without flags; who asks for them, gets an export's."""
    fake = table_class()
    fake.__dlpack__ = not_called  # type: ignore[method-assign]
    assert [image.look(fake(), flags)[5] for flags in (0, WRITE, 16)] == [1, 0, 0]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: np.array(["a"]), BufferError, "DLPack only"),
        (lambda: np.zeros(3, ">f4"), BufferError, "native byte order"),
        (lambda: np.zeros(3, "i1,f4")["f1"], BufferError, "strides"),
    ],
    ids=["text", "byte-order", "strides"],
)
def test_numpy_says_itself_what_it_does_not_export(
    image: Any, make: Any, error: type[Exception], text: str
) -> None:
    """R60: by its macros or not."""
    with pytest.raises(error, match=text):
        image.look(make())


def test_numpy_is_read_as_it_exports_itself(image: Any) -> None:
    """By its macros, or by `__dlpack__`: the same is seen."""
    frozen = np.arange(24.0).reshape(2, 3, 4)[:, ::-1]
    frozen.setflags(write=False)
    codes = {"?": 6, "i": 0, "u": 1, "f": 2, "c": 5}
    for text in "?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16":
        x = np.zeros((2, 3), text)
        dtype = (codes[text[0]], 8 * x.itemsize, 1)
        seen = (x.ctypes.data, (2, 3), (3, 1), dtype, (1, 0), 0, 1, 0)
        assert image.look(x, 16) == seen
    assert image.look(frozen)[1:7] == ((2, 3, 4), (12, -4, 1), (2, 64, 1), (1, 0), 1, 0)


def test_what_has_a_mask_is_refused(image: Any) -> None:
    """Memory does not show it, whether the class has it or the instance."""

    class Own(np.ndarray):
        mask: Any

    x = np.ones(3).view(Own)
    assert image.look(x)[1] == (3,)
    x.mask = None
    assert image.look(x)[1] == (3,)
    x.mask = np.array([True, False, False])
    for masked in (x, np.ma.masked_array([1.0, 2.0], [True, False])):
        for flags, advice in ((0, r"filled\(value\)$"), (1, "data, without it$")):
            with pytest.raises(BufferError, match=rf"has a mask, .*; pass x\.{advice}"):
                image.look(masked, flags)
        with pytest.raises(BufferError, match=r"^it has a mask, .*; pass x\.filled"):
            image.import_like(masked, None)
    # What a kernel fills would be lost in a copy; of the memory it is not.
    assert image.look(masked.data, 1)[0] == masked.ctypes.data


def test_a_method_that_is_called_mask_is_none(image: Any) -> None:
    class Own(np.ndarray):
        def mask(self) -> None:
            """Select elements."""

    assert image.look(np.ones(3).view(Own))[1] == (3,)
