"""The bytes of a tensor (`raw`, `span`), and tensors over bytes (`from_buffer`)."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_producers import ADDRESS
from support.random_layouts import DTYPES, layouts, taken, tensors, values


def address(buffer: Any) -> int:
    """Where the bytes of a buffer are."""
    return dlx.from_dlpack(memoryview(buffer).cast("B")).data_ptr


def test_bytes_of_a_tensor_of_one_element_are_its_memory() -> None:
    """R44: as NumPy's, a number of zeros only without dimensions."""
    x = np.array([5], "int32")
    assert bytes(dlx.from_dlpack(x)) == bytes(x) == x.tobytes()
    assert bytearray(dlx.from_dlpack(x)) == x.tobytes()


# `raw` and `span`.


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bytes_of_every_dtype_are_shared(dtype: str) -> None:
    """dlx-share/README.md, Bytes: also of those that a buffer cannot name."""
    t = dlx.empty((2, 4), dtype)
    raw = t.raw()
    assert (raw.format, raw.ndim, raw.readonly) == ("B", 1, False)
    assert len(raw) == t.nbytes
    assert address(raw) == t.data_ptr
    assert t.span == (t.data_ptr, t.nbytes)


@given(tensors())
def test_the_span_is_from_the_first_byte_to_the_last(t: dlx.Tensor) -> None:
    """dlx-share/README.md, Bytes: of any layout, forward and backward."""
    used = taken(t.shape, t.strides, t.dtype.name, t.is_padded)
    if used:
        assert t.span == (t.data_ptr + min(used), max(used) - min(used) + 1)
    else:
        assert t.span == (0, 0)


@given(tensors())
def test_a_tensor_has_raw_bytes_if_each_is_of_an_element(t: dlx.Tensor) -> None:
    """dlx-share/README.md, Bytes: gaps are refused, order and repetition are not."""
    used = taken(t.shape, t.strides, t.dtype.name, t.is_padded)
    dense = len(used) == (max(used) - min(used) + 1 if used else 0)
    # Elements of less than a byte may leave bits out, or begin within one.
    if dense and t.dtype.bits >= 8:
        t.raw()
    if not dense:
        with pytest.raises(BufferError, match=r"t.to\(copy=True\)"):
            t.raw()
        return
    with suppress(BufferError):
        raw = t.raw()
        assert len(raw) == t.span[1]
        if raw:
            assert address(raw) == t.span[0]
        assert raw.readonly == t.readonly


def test_the_bytes_keep_the_memory_alive() -> None:
    """dlx-share/README.md, Bytes: a view of the memory, not of the tensor."""
    owner = np.arange(4, dtype="uint8")
    gone = weakref.ref(owner)
    raw = dlx.from_dlpack(owner).raw()
    del owner
    assert raw.tolist() == [0, 1, 2, 3]
    raw.release()
    gc.collect()
    assert gone() is None


def test_memory_on_a_device_has_a_span_but_no_buffer() -> None:
    """dlx-share/README.md, Bytes: what is registered with a network card."""
    t = dlx.from_pointer(ADDRESS, (2, 3), "float32", device="cuda:0")
    assert t.span == (ADDRESS, 24)
    with pytest.raises(BufferError, match="cuda:0"):
        t.raw()


def test_a_buffer_object_has_no_span() -> None:
    """dlx-share/README.md, Bytes: the `data` of Metal is no address."""
    t = dlx.from_pointer(ADDRESS, (2, 3), "float32", device="metal:0")
    with pytest.raises(BufferError, match="metal:0 has no addresses"):
        _ = t.span


@pytest.mark.parametrize("use", [lambda t: t.raw(), lambda t: t.span])
def test_a_lent_tensor_gives_no_bytes_after_its_block(
    use: Callable[[dlx.Tensor], object],
) -> None:
    """docs/streams.md: its memory may be gone."""
    with dlx.borrow(np.zeros(3)) as (t, _):
        use(t)
    with pytest.raises(BufferError, match="block that has ended"):
        use(t)


# `from_buffer`.


@given(tensors())
def test_the_same_strides_over_the_bytes_are_the_same_tensor(t: dlx.Tensor) -> None:
    """dlx-share/README.md, Bytes: `from_buffer` reverts `raw`."""
    try:
        raw = t.raw()
    except BufferError:
        return
    back = dlx.from_buffer(raw, t.shape, t.dtype, strides=t.strides, padded=t.is_padded)
    assert (back.shape, back.strides) == (t.shape, t.strides)
    assert (back.dtype, back.readonly) == (t.dtype, t.readonly)
    assert (back.data_ptr, back.is_copied) == (t.data_ptr, False)


@given(layouts(), st.integers(0, 40), st.none() | st.integers(-40, 40))
def test_no_element_is_outside_of_the_buffer(
    layout: tuple[list[int], list[int], str, bool], length: int, offset: int | None
) -> None:
    """dlx-share/README.md, Bytes: checked before anything is made."""
    shape, strides, dtype, padded = layout
    used = taken(shape, strides, dtype, padded)
    first = offset if offset is not None else -min(used, default=0)
    inside = first + min(used, default=0) >= 0 and first + max(used, default=-1) < (
        length
    )
    memory = bytearray(range(length))
    options: dict[str, Any] = {"strides": strides, "offset": offset, "padded": padded}
    if not inside:
        outside = f"outside of the buffer of {length} bytes"
        with pytest.raises(BufferError, match=outside):
            dlx.from_buffer(memory, shape, dtype, **options)
        return
    t = dlx.from_buffer(memory, shape, dtype, **options)
    if used and not t.is_copied:
        assert t.data_ptr == address(memory) + first
    expected = dlx.from_buffer(memory, shape, dtype, copy=True, **options)
    assert expected.is_copied
    assert values(t) == values(expected)


def test_row_major_is_the_default() -> None:
    """`help(dlx.from_buffer)`."""
    t = dlx.from_buffer(bytearray(range(6)), (2, 3), "uint8")
    assert t.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert t.strides == (3, 1)


def test_the_offset_counts_bytes_to_the_first_element() -> None:
    """`help(dlx.from_buffer)`: also backward."""
    memory = array.array("h", range(6))
    t = dlx.from_buffer(memory, (3,), "int16", strides=(-1,), offset=8)
    assert t.tolist() == [4, 3, 2]


BUFFERS: dict[str, tuple[Callable[[], Any], bool]] = {
    "bytes": (lambda: bytes(16), True),
    "bytearray": (lambda: bytearray(16), False),
    "memoryview": (lambda: memoryview(bytearray(16)).toreadonly(), True),
    "mmap": (lambda: mmap.mmap(-1, 16), False),
    "ctypes": (lambda: (ctypes.c_double * 2)(), False),
    "two dimensions": (lambda: np.zeros((2, 4), "uint16"), False),
    "no format": (lambda: np.zeros(8, ml_dtypes.bfloat16), False),
    "dates": (lambda: np.zeros(2, "datetime64[s]"), False),
}


@pytest.mark.parametrize(("make", "readonly"), BUFFERS.values(), ids=BUFFERS)
def test_any_buffer_will_do(make: Callable[[], Any], readonly: bool) -> None:
    """dlx-share/README.md, Bytes: its own format and shape do not count."""
    t = dlx.from_buffer(make(), (2, 4), "bfloat16")
    assert t.tolist() == [[0.0] * 4] * 2
    assert t.readonly == readonly


def test_readonly_is_added_but_never_taken_away() -> None:
    """dlx-share/README.md, Bytes: what is read-only stays so."""
    assert dlx.from_buffer(bytearray(4), (4,), "uint8", readonly=True).readonly
    assert dlx.from_buffer(bytes(4), (4,), "uint8", readonly=False).readonly


def test_the_buffer_is_held() -> None:
    """dlx-share/README.md, Bytes: a bytearray cannot be resized meanwhile."""
    memory = bytearray(4)
    t = dlx.from_buffer(memory, (2,), "uint8")
    with pytest.raises(BufferError):
        memory.append(0)
    del t
    memory.append(0)


class Holder(bytearray):
    """A buffer that can hold a tensor."""

    tensor: dlx.Tensor


def test_a_buffer_that_holds_its_tensor_is_collected() -> None:
    """`help(dlx.from_pointer)`: as an owner that refers to it is."""
    holder = Holder(8)
    holder.tensor = dlx.from_buffer(holder, (8,), "uint8")
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


def test_a_misaligned_address_is_copied_with_its_strides() -> None:
    """dlx-share/README.md, Bytes: compiled code expects elements at their multiples."""
    memory = np.arange(33, dtype="uint8")
    start = next(n for n in range(4) if (memory.ctypes.data + n) % 4 == 1)
    options: dict[str, Any] = {"strides": (1, 2), "offset": start}
    t = dlx.from_buffer(memory, (2, 3), "float32", **options)
    assert t.is_copied
    assert t.data_ptr % 4 == 0
    assert t.strides == (1, 2)
    assert t.raw() == memory[start : start + 24].data
    with pytest.raises(dlx.CopyRefused, match="no multiple"):
        dlx.from_buffer(memory, (2, 3), "float32", copy=False, **options)


@pytest.mark.parametrize(
    ("copy", "readonly", "result"),
    [(None, False, True), (True, False, False), (True, True, True)],
)
def test_only_a_requested_copy_of_read_only_bytes_is_writable(
    copy: bool | None, readonly: bool, result: bool
) -> None:
    """dlx-share/README.md, Bytes: alignment decides nothing that a reader can see."""
    memory = np.zeros(12, "uint8")
    memory.flags.writeable = False
    start = 1 - memory.ctypes.data % 2
    t = dlx.from_buffer(
        memory, (2,), "float32", offset=start, copy=copy, readonly=readonly
    )
    assert t.is_copied
    assert t.readonly == result


def test_few_elements_of_a_large_buffer_are_copied_alone() -> None:
    """dlx-share/README.md, Bytes: a copy has the tensor's bytes, not the buffer's."""
    file = os.memfd_create("large")
    os.ftruncate(file, 1 << 40)
    with mmap.mmap(file, 0) as memory:
        os.close(file)
        t = dlx.from_buffer(memory, (2,), "float32", offset=1)
        assert t.is_copied
        assert t.span[1] == 8
        del t


@pytest.mark.parametrize(
    "buffer",
    [
        memoryview(bytearray(16))[::2],
        np.zeros((4, 4), order="F"),
        np.zeros(8)[::-1],
    ],
)
def test_bytes_in_another_order_are_refused(buffer: Any) -> None:
    """dlx-share/README.md, Bytes: which is first would be a guess."""
    with pytest.raises(BufferError, match="not in C order"):
        dlx.from_buffer(buffer, (2,), "uint8")


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((-1,), {}),
        ((2**62, 4), {}),
        ((2**63 - 1,), {"strides": (2**40,)}),
        ((2,), {"strides": (-(2**63),)}),
        ((2,), {"strides": (2**62,), "offset": 2**62}),
        ((1,), {"offset": 2**63 - 1}),
        ((1,), {"offset": -(2**63)}),
        ((1,) * 65, {}),
    ],
)
def test_numbers_that_no_memory_has_are_refused(
    shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    """R88, R109: no sum or product of them wraps around."""
    with pytest.raises(BufferError):
        dlx.from_buffer(bytearray(16), shape, "float32", **options)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((5, (1,), "uint8"), {}, TypeError),
        ((b"a", 1, "uint8"), {}, TypeError),
        ((b"a", (1,), "uint9"), {}, ValueError),
        ((b"a", (1,), (0, 9, 1)), {}, ValueError),
        ((b"a", (1,), "uint8"), {"strides": (1, 1)}, ValueError),
        ((b"a", (1,), "uint8"), {"offset": "0"}, TypeError),
        ((b"a", (2**70,), "uint8"), {}, ValueError),
    ],
)
def test_bad_arguments_are_errors(
    arguments: Any, options: Any, error: type[Exception]
) -> None:
    """`help(dlx.from_buffer)`: the exceptions that it lists."""
    with pytest.raises(error):
        dlx.from_buffer(*arguments, **options)


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3), np.arange(6)[::-2]])
def test_the_bytes_are_those_of_the_elements_in_row_major_order(
    array: np.ndarray[Any, Any],
) -> None:
    """`help(dlx.Tensor.tobytes)`: whatever the strides are."""
    assert dlx.from_dlpack(array).tobytes() == array.tobytes()
    assert dlx.from_dlpack(array.T).tobytes() == array.T.tobytes()


def test_memory_on_a_device_has_no_bytes() -> None:
    with pytest.raises(BufferError, match="cuda"):
        dlx.from_pointer(4096, (2, 3), "float32", device="cuda:0").tobytes()
