"""`convert` of memory that is not aligned to its elements: C code may fail on it."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from numpy.typing import NDArray
from support.fake_producers import Producer
from support.optional_libraries import requires
from support.python_process import run_python

Array = NDArray[Any]


def at(offset: int, dtype: str, size: int = 16) -> Array:
    """Elements that begin so many bytes behind a multiple of 256."""
    kind = np.dtype(dtype)
    memory = np.zeros(size * kind.itemsize + 512, "u1")
    start = -memory.ctypes.data % 256 + offset
    array = memory[start : start + size * kind.itemsize].view(kind)
    array[...] = np.arange(size) % 2
    return array


PLACES = [
    (dtype, offset)
    for dtype in ("int16", "float32", "float64", "complex64", "complex128")
    for offset in (1, 2, 4, 8, 16)
    if offset < 16 or dtype == "complex128"
]


@pytest.mark.parametrize(("dtype", "offset"), PLACES)
def test_a_library_shares_only_memory_that_is_aligned_to_its_elements(
    dtype: str, offset: int
) -> None:
    """R96: complex128 counts as one element of 16 bytes, as in torch's C++."""
    torch = requires("torch")
    array = at(offset, dtype)
    made = dlx.convert(array, torch.Tensor)
    np.testing.assert_array_equal(made.numpy(), array)
    is_aligned = offset % array.itemsize == 0
    assert (made.data_ptr() == array.ctypes.data) is is_aligned


def test_torch_can_compute_with_what_is_made_of_misaligned_memory() -> None:
    """Without a copy, torch's kernels for complex128 end the process."""
    requires("torch")
    code = """
        import dlx, numpy as np, torch
        array = np.frombuffer(bytearray(257), "c16", offset=1)
        made = dlx.convert(array, torch.Tensor)
        assert not made.any() and not made.to(torch.float64).sum()
        assert torch.where(made == 0, made + 1, made).sum() == 16
        """
    status, _, errors = run_python(code)
    assert status == 0, errors


class Holder(dlx.ExchangeMixin, exchange="inner"):
    """A class that exports what it holds."""

    def __init__(self, inner: Any) -> None:
        """Hold."""
        self.inner = inner


def behind(array: Array) -> Producer:
    """A producer whose tensor begins two bytes behind `array`."""
    return Producer(memory=array, byte_offset=2, shape=(8,))


@pytest.mark.parametrize("wrap", [dlx.from_dlpack, behind, Holder, memoryview])
def test_misaligned_memory_is_copied_whoever_hands_it_out(wrap: Any) -> None:
    """R96: `byte_offset` counts (R19)."""
    torch = requires("torch")
    x = wrap(at(0 if wrap is behind else 2, "f4"))
    there = dlx.from_dlpack(x)
    assert there.data_ptr % 4 == 2
    made = dlx.convert(x, torch.Tensor)
    assert made.data_ptr() % 256 == 0
    assert made.numpy().tobytes() == there.numpy().tobytes()


@pytest.mark.parametrize("target", [np.ndarray, dlx.Tensor])
def test_numpy_and_dlx_share_misaligned_memory(target: Any) -> None:
    """NumPy looks at the address itself."""
    array = at(2, "f4")
    made = dlx.convert(dlx.from_dlpack(array), target)
    assert np.asarray(made).ctypes.data == array.ctypes.data
    assert not np.asarray(made).flags.aligned


def test_misaligned_memory_is_refused_where_nothing_may_be_copied() -> None:
    """R58: and the message says what to call."""
    torch = requires("torch")
    with pytest.raises(dlx.CopyRefused, match=r"aligned to its elements.*copy=True"):
        dlx.convert(at(2, "f4"), torch.Tensor, copy=False)
    made = dlx.convert(at(2, "f4"), torch.Tensor, copy=True)
    np.testing.assert_array_equal(made.numpy(), at(2, "f4"))


class Taker:
    """A library whose function keeps what it is given."""

    def __init__(self, tensor: dlx.Tensor) -> None:
        """Hold."""
        self.tensor = tensor

    @classmethod
    def from_dlpack(cls, x: dlx.Tensor) -> Taker:
        """Import."""
        return cls(x)

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export."""
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """On the CPU."""
        return (1, 0)


def test_a_function_gets_aligned_memory_too() -> None:
    """R58: or the call is refused before the function has seen the tensor."""
    array = at(4, "f8")
    taken = dlx.convert(array, Taker).tensor
    assert taken.data_ptr % 256 == 0
    np.testing.assert_array_equal(taken.numpy(), array)
    with pytest.raises(dlx.CopyRefused, match="aligned to its elements"):
        dlx.convert(array, Taker, copy=False)
    assert dlx.convert(at(8, "f8"), Taker, copy=False).tensor.data_ptr % 256 == 8


def test_what_is_empty_lies_anywhere() -> None:
    """R20: it has no address."""
    torch = requires("torch")
    made = dlx.convert(at(1, "f4")[:0], torch.Tensor, copy=False)
    assert made.numel() == 0


@pytest.mark.parametrize(("dtype", "offset"), [("float32x3", 4), ("float4_e2m1fn", 1)])
def test_vectors_and_packed_elements_need_what_divides_them(
    dtype: str, offset: int
) -> None:
    """Three numbers are aligned as one is; less than a byte lies at any."""
    memory = at(offset, "u1", 64)
    x = dlx.from_pointer(memory.ctypes.data, (4,), dtype, owner=memory)
    made = dlx.convert(x, Taker, copy=False).tensor
    assert made.data_ptr == memory.ctypes.data
