"""Objects that have `__arrow_c_stream__`, with one array in the stream."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    addressof,
    byref,
    c_int,
    c_void_p,
    cast,
    create_string_buffer,
)
from typing import Any

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from support.dlpack_abi import capsule_pointer


class ArrowArrayStream(Structure):
    """`ArrowArrayStream`."""

    _fields_ = (
        ("get_schema", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("get_next", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("get_last_error", CFUNCTYPE(c_void_p, c_void_p)),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("private_data", c_void_p),
    )


class ByStream:
    """The stream of a chunked array, changed by `change`."""

    def __init__(self, chunks: Any, change: Any = None) -> None:
        """Keep the array."""
        self.chunks, self.change = chunks, change
        self.capsule: Any = None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the stream."""
        self.capsule = self.chunks.__arrow_c_stream__()
        if self.change is not None:
            self.change(stream_in(self.capsule))
        return self.capsule


def stream_in(capsule: Any) -> ArrowArrayStream:
    """The struct in a capsule."""
    address = capsule_pointer(capsule, b"arrow_array_stream")
    stream: ArrowArrayStream = cast(address, POINTER(ArrowArrayStream)).contents
    return stream


@pytest.mark.parametrize("chunks", [[[1, 2, 3]], [[], [1, 2, 3], []]])
def test_the_only_chunk_is_shared(chunks: list[list[int]]) -> None:
    """Those without elements do not count."""
    x = pa.chunked_array(chunks, pa.int32())
    t = dlx.from_dlpack(x, copy=False)
    (chunk,) = (c for c in x.chunks if len(c))
    assert t.data_ptr == chunk.buffers()[1].address
    assert t.readonly
    assert (str(t.dtype), t.tolist()) == ("int32", [1, 2, 3])


@pytest.mark.parametrize("chunks", [[], [[]], [[], []]])
def test_a_stream_without_elements_is_an_empty_tensor(chunks: list[Any]) -> None:
    """R95: its data is NULL."""
    t = dlx.from_dlpack(pa.chunked_array(chunks, pa.float32()))
    assert (t.shape, str(t.dtype), t.data_ptr) == ((0,), "float32", 0)


def test_two_chunks_are_refused_with_what_makes_them_one() -> None:
    """R61: they are not one piece of memory."""
    x = pa.chunked_array([[1], [2]])
    with pytest.raises(BufferError, match=r"more than one .* make them one first"):
        dlx.from_dlpack(ByStream(x))
    assert dlx.from_dlpack(x.combine_chunks()).tolist() == [1, 2]


def test_the_chunk_outlives_the_stream_and_the_object() -> None:
    """R11, docs/safety.md S12."""
    held = pa.total_allocated_bytes()
    t = dlx.from_dlpack(pa.chunked_array([np.arange(10_000)]))
    gc.collect()
    assert t.tolist() == list(range(10_000))
    del t
    gc.collect()
    assert pa.total_allocated_bytes() == held


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        (pa.chunked_array([[1, None]]), "null_count 1"),
        (pa.chunked_array([["a"]]), "has strings"),
        (pa.chunked_array([[True]]), "booleans of one bit each"),
        (pa.table({"a": [1]}), "has structs"),
    ],
)
def test_other_elements_are_refused(chunks: Any, says: str) -> None:
    """As those of an array are; a table is a stream of structs."""
    with pytest.raises(BufferError, match=says):
        dlx.from_dlpack(ByStream(chunks))


def test_a_stream_is_released_once() -> None:
    """R8, docs/safety.md S12: whatever becomes of it."""
    released: list[int] = []
    kept: list[Any] = []

    def count(stream: ArrowArrayStream) -> None:
        theirs = type(stream.release)(cast(stream.release, c_void_p).value or 0)

        def release(address: int) -> None:
            released.append(1)
            theirs(address)

        kept.append(type(stream.release)(release))
        stream.release = kept[-1]

    for chunks in ([[1]], [[1], [2]], [[1, None]]):
        x = ByStream(pa.chunked_array(chunks), count)
        with suppress(BufferError):
            dlx.from_dlpack(x)
        del x
        gc.collect()
    assert len(released) == 3


@pytest.mark.parametrize("name", ["get_schema", "get_next"])
def test_an_error_of_a_stream_is_told(name: str) -> None:
    """By its first line, and the code."""
    kept: list[Any] = []

    def fail(stream: ArrowArrayStream) -> None:
        kept.append(type(getattr(stream, name))(lambda *_: 5))
        setattr(stream, name, kept[-1])
        text = create_string_buffer(b"no such file\nat line 3")
        kept.append(type(stream.get_last_error)(lambda _: addressof(text)))
        stream.get_last_error = kept[-1]

    x = ByStream(pa.chunked_array([[1]]), fail)
    with pytest.raises(BufferError, match=f"{name} of .* failed with 5: no such file$"):
        dlx.from_dlpack(x)


@pytest.mark.parametrize("name", ["get_schema", "get_next", "release"])
def test_a_stream_without_a_function_is_refused(name: str) -> None:
    """A released one has none."""

    def remove(stream: ArrowArrayStream) -> None:
        place = byref(stream, getattr(ArrowArrayStream, name).offset)
        cast(place, POINTER(c_void_p))[0] = None

    with pytest.raises(BufferError, match="the Arrow stream has"):
        dlx.from_dlpack(ByStream(pa.chunked_array([[1]]), remove))


@pytest.mark.parametrize("answer", [None, 3, "stream"])
def test_what_is_no_capsule_is_a_type_error(answer: Any) -> None:
    """`__arrow_c_stream__` returns one."""

    class Wrong:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return answer

    with pytest.raises(TypeError, match="not a capsule"):
        dlx.from_dlpack(Wrong())


def test_a_copy_is_found_by_its_address() -> None:
    """R58: two streams of one object show the same memory, or it is a copy."""

    class Copying:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return pa.chunked_array([np.arange(3).tolist()]).__arrow_c_stream__()

    assert dlx.from_dlpack(Copying()).tolist() == [0, 1, 2]
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(Copying(), copy=False)


def test_the_exception_of_a_producer_passes() -> None:
    """R60: the very object that was raised."""
    error = ValueError("closed")

    class Closed:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            raise error

    with pytest.raises(ValueError, match="closed") as caught:
        dlx.from_dlpack(Closed())
    assert caught.value is error
    assert sys.exc_info() == (None, None, None)


def test_a_stream_that_can_be_read_once_is_not_shown_to_be_shared() -> None:
    """R58: with the error of the second reading as the cause."""

    class Once:
        chunks: Any = pa.chunked_array([[1, 2]])

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            chunks, self.chunks = self.chunks, None
            if chunks is None:
                raise ValueError("closed")
            return chunks.__arrow_c_stream__()

    with pytest.raises(dlx.CopyRefused, match="read only once") as refused:
        dlx.from_dlpack(Once(), copy=False)
    assert str(refused.value.__cause__) == "closed"
    assert dlx.from_dlpack(Once()).tolist() == [1, 2]
