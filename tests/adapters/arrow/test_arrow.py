"""Arrow arrays that dlx takes, of objects that know nothing of DLPack."""

from __future__ import annotations

from struct import pack
from typing import Any

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dlpack_abi import for_ever
from support.fake_arrow import (
    Answering,
    ByArray,
    array_in,
    either,
    numbers,
    schema_field,
)
from support.optional_libraries import requires

Show = type[ByArray]

DTYPES = [
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


def address(array: Any) -> int:
    """Address of the first element."""
    return int(array.buffers()[1].address + array.offset * array.type.bit_width // 8)


@either
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_primitive_array_comes_in_as_it_is(dtype: str, show: Show) -> None:
    """Arrow's PyCapsule interface; R49, R102, R153."""
    source = numbers(dtype)
    tensor = dlx.from_dlpack(show(source))
    assert tensor.dtype == dtype
    assert tensor.device == "cpu"
    assert (tensor.shape, tensor.strides) == ((5,), (1,))
    assert tensor.data_ptr == address(source)
    assert tensor.numpy().tolist() == source.to_pylist()


@either
def test_what_comes_from_arrow_is_read_only(show: Show) -> None:
    """R39, R153: Arrow's data are immutable."""
    tensor = dlx.from_dlpack(show(numbers()))
    assert tensor.readonly
    assert not np.from_dlpack(tensor).flags.writeable


@either
@given(
    size=st.integers(0, 9),
    start=st.integers(0, 9),
    length=st.integers(0, 9),
    dtype=st.sampled_from(DTYPES),
)
def test_a_slice_begins_where_it_says(
    show: Show, size: int, start: int, length: int, dtype: str
) -> None:
    """R95: Arrow's offset counts elements."""
    source = numbers(dtype, size).slice(min(start, size), length)
    tensor = dlx.from_dlpack(show(source))
    assert tensor.data_ptr == (address(source) if len(source) else 0)
    assert tensor.numpy().tolist() == source.to_pylist()


@either
def test_an_empty_array_may_have_no_memory(show: Show) -> None:
    """R93: its buffer may be NULL."""

    def change(schema: Any, struct: Any) -> None:
        array_in(struct).buffers[1] = None

    assert dlx.from_dlpack(show(numbers(size=0), change)).shape == (0,)


@pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning")
def test_pyarrow_goes_by_dlpack() -> None:
    """docs/design.md, The way in: rung 4, where pyarrow says what it lacks."""
    with pytest.raises(BufferError, match="numbers and nulls") as refused:
        dlx.from_dlpack(pa.array([1, None]))
    assert isinstance(refused.value.__cause__, pa.ArrowTypeError)


@pytest.mark.filterwarnings("error:Exporting an unversioned:DeprecationWarning")
def test_pyarrow_is_not_asked_again_without_a_version() -> None:
    """R32: its TypeError is of a class of its own, so it is not about the keyword."""
    with pytest.raises(BufferError):
        dlx.from_dlpack(pa.array(["a"]))


# Nulls


@either
@given(
    valid=st.lists(st.booleans(), max_size=40),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
    known=st.booleans(),
)
def test_nulls_are_refused_and_only_they(
    show: Show, valid: list[bool], start: int, length: int, known: bool
) -> None:
    """R63: where nobody has counted them (-1) too."""
    source = pa.array([1 if bit else None for bit in valid], pa.int16())
    source = source.slice(min(start, len(valid)), length)

    def change(schema: Any, struct: Any) -> None:
        array_in(struct).null_count = source.null_count if known else -1

    if source.null_count == 0:
        assert dlx.from_dlpack(show(source, change)).shape == (len(source),)
    else:
        with pytest.raises(BufferError, match=f"null_count {source.null_count};"):
            dlx.from_dlpack(show(source, change))


# What is refused

TYPES: dict[str, tuple[Any, str]] = {
    "booleans": (pa.array([True]), "booleans of one bit each"),
    "nulls": (pa.nulls(2), "nulls alone"),
    "text": (pa.array(["a"]), "strings"),
    "large text": (pa.array(["a"], pa.large_string()), "strings"),
    "views of text": (pa.array(["a"], pa.string_view()), "strings"),
    "bytes": (pa.array([b"a"]), "bytes"),
    "bytes of a width": (pa.array([b"a"], pa.binary(1)), "bytes"),
    "timestamps": (pa.array([1], pa.timestamp("s")), "timestamps in s"),
    "timestamps in µs": (pa.array([1], pa.timestamp("us", "UTC")), "timestamps in µs"),
    "dates": (pa.array([1], pa.date32()), "dates"),
    "decimals": (pa.array([1], pa.decimal128(5)), "decimals"),
    "a dictionary": (
        pa.array([7, 7]).dictionary_encode(),
        "categories [(]indices of a dictionary",
    ),
    "lists": (pa.array([[1]]), "lists"),
    "lists of a width": (pa.array([[1]], pa.list_(pa.int8(), 1)), "lists"),
    "a tensor of a width": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [2]),
            pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
        ),
        "lists",
    ),
    "durations": (pa.array([1], pa.duration("s")), "durations in s"),
    "times": (pa.array([1], pa.time32("s")), "times of day in s"),
    "structs": (pa.array([{"x": 1}]), "structs"),
    "a batch": (pa.record_batch({"x": [1]}), "structs"),
}


@either
@pytest.mark.parametrize(("source", "message"), TYPES.values(), ids=TYPES)
def test_another_type_is_refused_by_what_it_has(
    source: Any, message: str, show: Show
) -> None:
    """R63: in words, not by the letters of Arrow, and what it may have."""
    with pytest.raises(BufferError, match=f"array has {message}.*; expected integers"):
        dlx.from_dlpack(show(source))


INT8 = pa.int8()


def storing(name: str, values: list[int], dtype: Any = INT8) -> Any:
    """Numbers as an extension type stores them."""
    known = {"bool8": pa.bool8, "opaque": lambda: pa.opaque(dtype, "a type", "a maker")}
    return pa.ExtensionArray.from_storage(known[name](), pa.array(values, dtype))


@either
def test_bool8_is_bool(show: Show) -> None:
    """Arrow's canonical extension types: a boolean in a byte, which is DLPack's."""
    source = storing("bool8", [9, 1, 0, 1])[1:]
    tensor = dlx.from_dlpack(show(source))
    assert tensor.dtype == "bool"
    assert tensor.data_ptr == address(source.storage)
    assert tensor.numpy().tolist() == [True, False, True]


@either
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (storing("bool8", [0, 1, 2]), "arrow.bool8, and a byte"),
        (storing("bool8", [0, 1, -1]), "arrow.bool8, and a byte"),
        (storing("opaque", [1]), "arrow.opaque, whose elements are more"),
        (storing("opaque", [1], pa.float64()), "arrow.opaque"),
    ],
    ids=str,
)
def test_numbers_that_mean_more_are_refused_and_their_storage_is_taken(
    source: Any, message: str, show: Show
) -> None:
    """R63: an extension type's numbers without the type are others."""
    with pytest.raises(BufferError, match=message) as caught:
        dlx.from_dlpack(show(source))
    assert "pass its storage (.storage in pyarrow)" in str(caught.value)
    taken = dlx.from_dlpack(show(source.storage))
    assert taken.numpy().tolist() == source.storage.to_pylist()


@either
def test_a_field_may_say_other_things(show: Show) -> None:
    """Arrow's C data interface: one key of the metadata changes what numbers mean."""
    text = b"".join(pack("=i", len(t)) + t for t in (b"unit", b"km", b"", b"ARROW"))
    metadata = pack("=i", 2) + text
    source = numbers()
    tensor = dlx.from_dlpack(show(source, schema_field("metadata", for_ever(metadata))))
    assert tensor.numpy().tolist() == source.to_pylist()


@pytest.mark.parametrize(
    "error", [BufferError("full"), ValueError("broken"), KeyboardInterrupt()]
)
def test_the_exception_of_a_producer_passes(error: BaseException) -> None:
    """R60: the very object that was raised."""
    with pytest.raises(type(error)) as caught:
        dlx.from_dlpack(Answering(error))
    assert caught.value is error


@either
@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"device": "cuda:0"}, BufferError),
        ({"device": "cuda:0", "copy": False}, dlx.CopyRefused),
        ({"stream": 1}, BufferError),
    ],
)
def test_what_cannot_be_had_is_refused(
    asked: dict[str, Any], error: type[Exception], show: Show
) -> None:
    """R57, R58, R70: another device, or a stream, of memory on the CPU."""
    with pytest.raises(error) as caught:
        dlx.from_dlpack(show(numbers()), **asked)
    assert type(caught.value) is error


class Older:
    """An array as pyarrow before 26 exports it, in an unversioned capsule."""

    def __init__(self, array: Any) -> None:
        """Keep an array."""
        self.array = array

    def __dlpack__(self, *, stream: object = None) -> Any:
        """Export without flags."""
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return (1, 0)

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        """Export by Arrow's C data interface."""
        return self.array.__arrow_c_array__(requested_schema)


@pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning")
@pytest.mark.parametrize("times", [1, 20])
def test_an_array_is_read_only_where_its_capsule_cannot_say_so(times: int) -> None:
    """docs/safety.md, S12: Arrow's arrays are immutable, whatever the door."""
    for _ in range(times):  # dlx asks a type that it has met another way
        tensor = dlx.from_dlpack(Older(numbers()))
    assert ", readonly" in repr(tensor)


@pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning")
def test_who_converts_an_array_of_arrow_cannot_write_to_it() -> None:
    """docs/safety.md, S12: torch has no read-only tensors, so it gets a copy."""
    torch, array = requires("torch"), numbers()
    dlx.convert(Older(array), torch.Tensor).fill_(9)
    assert array.equals(numbers())
