"""Real libraries at both ends of dlx: nothing of a tensor is lost on the way.

torch has more in `test_torch_data.py`, the read-only flag is in `test_interop_flag.py`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_strict
import dlx
import numpy as np
import numpy.typing as npt
import pyarrow  # type: ignore[import-untyped]
import pytest
import tvm_ffi
from support.fake_table import not_called
from support.optional_libraries import requires, take_view

Array = npt.NDArray[Any]


class Seen(NamedTuple):
    """What a library says of a tensor."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Library(NamedTuple):
    """How a library takes tensors and describes its own."""

    take: Callable[[Any], Any]
    see: Callable[[Any], Seen]
    dtypes: str
    layouts: str


INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
NUMBERS = f"bool {INTEGERS} float32 float64 complex64 complex128"
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "row-major": lambda array: array,
    "1-d": lambda array: array[1],
    "transposed": lambda array: array.T,
    "strided": lambda array: array[::2, 1::2],
    "0-d": lambda array: array[1, 2, ...],
    "reversed": lambda array: array[::-1, ::-2],
    "read-only": lambda array: np.broadcast_to(array[0], (3, 6)),
}
FORWARD = "row-major 1-d transposed strided 0-d"


def see_dlx(tensor: dlx.Tensor) -> Seen:
    """Look at dlx's own."""
    return Seen(tensor.data_ptr, tensor.shape, tensor.strides, str(tensor.dtype))


def see_numpy(array: Array) -> Seen:
    """NumPy counts strides in bytes."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Seen(array.ctypes.data, array.shape, strides, str(array.dtype))


def see_torch(tensor: Any) -> Seen:
    """Names of torch's dtypes have a prefix."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Seen(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), dtype)


def see_tvm(tensor: Any) -> Seen:
    """tvm-ffi 0.1.15 cannot name complex dtypes, and the wrapper gives no more."""
    capsule = tvm_ffi.core.DLTensorTestWrapper(tensor)
    dtype = str(dlx.from_dlpack(capsule).dtype)
    return Seen(tensor.data_ptr(), tensor.shape, tensor.strides, dtype)


def see_view(view: Any) -> Seen:
    """cuda.core may leave out the strides."""
    return Seen(view.ptr, view.shape, view.strides or (), str(view.dtype))


def see_arrow(array: Any) -> Seen:
    """pyarrow has one dimension and no strides."""
    address = array.buffers()[1].address + array.offset * array.type.bit_width // 8
    return Seen(address, (len(array),), (1,), str(array.type.to_pandas_dtype()().dtype))


def take_torch(x: Any) -> Any:
    """`torch.from_dlpack`."""
    return requires("torch").from_dlpack(x)


LIBRARIES = {
    "numpy": Library(
        np.from_dlpack, see_numpy, f"{NUMBERS} float16", f"{FORWARD} reversed read-only"
    ),
    "array_api_strict": Library(
        array_api_strict.from_dlpack,
        lambda array: see_numpy(np.from_dlpack(array)),
        NUMBERS,
        f"{FORWARD} reversed read-only",
    ),
    "tvm_ffi": Library(
        tvm_ffi.from_dlpack, see_tvm, f"{NUMBERS} float16", f"{FORWARD} reversed"
    ),
    "pyarrow": Library(
        pyarrow.Array.from_dlpack,
        see_arrow,
        f"{INTEGERS} float16 float32 float64",
        "1-d",
    ),
    "torch": Library(take_torch, see_torch, f"{NUMBERS} float16", FORWARD),
    "cuda.core": Library(
        take_view, see_view, f"{NUMBERS} float16", f"{FORWARD} reversed read-only"
    ),
}
every_dtype = pytest.mark.parametrize(
    ("library", "dtype"),
    [
        (name, dtype)
        for name, each in LIBRARIES.items()
        for dtype in each.dtypes.split()
    ],
)
every_layout = pytest.mark.parametrize(
    ("library", "layout"),
    [(name, kind) for name, each in LIBRARIES.items() for kind in each.layouts.split()],
)


def grid(dtype: str = "float32") -> Array:
    """Ones and noughts, which every dtype has."""
    return (np.arange(24) % 2).reshape(4, 6).astype(dtype)


class Watched(np.ndarray[Any, Any]):
    """An array that can be watched."""


def watched() -> tuple[Array, weakref.ref[Array]]:
    """Array and a reference that does not hold it."""
    array: Array = np.arange(3.0).view(Watched)
    return array, weakref.ref(array)


@every_dtype
def test_a_library_sees_each_dtype_as_dlx_does(library: str, dtype: str) -> None:
    """R102 to R104, R49: from dlx to the library."""
    take, see, _, _ = LIBRARIES[library]
    tensor = dlx.from_dlpack(grid(dtype)[1])
    assert see(take(tensor)) == see_dlx(tensor)
    assert see_dlx(tensor).dtype == dtype


@every_dtype
def test_dlx_sees_each_dtype_as_a_library_does(library: str, dtype: str) -> None:
    """R102 to R104, R49: from the library to dlx."""
    take, see, _, _ = LIBRARIES[library]
    theirs = take(grid(dtype)[1])
    assert see_dlx(dlx.from_dlpack(theirs)) == see(theirs)
    assert see(theirs).dtype == dtype


@every_layout
def test_a_library_sees_each_layout_as_dlx_does(library: str, layout: str) -> None:
    """R89, R92, R95: from dlx to the library."""
    take, see, _, _ = LIBRARIES[library]
    tensor = dlx.from_dlpack(LAYOUTS[layout](grid()))
    assert see(take(tensor)) == see_dlx(tensor)


@every_layout
def test_dlx_sees_each_layout_as_a_library_does(library: str, layout: str) -> None:
    """R89, R92, R95: from the library to dlx."""
    take, see, _, _ = LIBRARIES[library]
    theirs = take(LAYOUTS[layout](grid()))
    assert see_dlx(dlx.from_dlpack(theirs)) == see(theirs)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_empty_tensor_goes_there_and_back(library: str) -> None:
    """R93, R94: its address is NULL on the way back."""
    take, see, _, _ = LIBRARIES[library]
    theirs = take(dlx.from_pointer(0, (0,), "int16"))
    assert see(theirs)[1::2] == ((0,), "int16")
    back = dlx.from_dlpack(theirs)
    assert (back.shape, str(back.dtype), back.data_ptr) == ((0,), "int16", 0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_holds_the_memory_that_it_took(library: str) -> None:
    """R15, R8: until its own array dies."""
    array, alive = watched()
    theirs = LIBRARIES[library].take(dlx.from_dlpack(array))
    del array
    gc.collect()
    assert alive() is not None
    del theirs
    gc.collect()
    assert alive() is None


# Functions of tvm-ffi


@pytest.fixture
def no_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every call of dlx's `__dlpack__` an error: only the table is left."""
    monkeypatch.setattr(dlx.Tensor, "__dlpack__", not_called)


by_table = pytest.mark.usefixtures("no_protocol")


def echo(tensor: dlx.Tensor) -> Any:
    """Send a tensor to C++ and back: `from_py` and `to_py` of dlx's table."""
    function: Any = tvm_ffi.get_global_func("testing.echo")
    return function(tensor)


@by_table
@pytest.mark.parametrize(
    "of",
    [*LAYOUTS.values(), lambda array: array[:0]],
    ids=[*LAYOUTS, "empty"],
)
def test_a_tensor_comes_back_from_a_function_as_it_went(
    of: Callable[[Array], Array],
) -> None:
    """R128, R130: as a dlx.Tensor, because a dlx.Tensor went."""
    tensor = dlx.from_dlpack(of(grid()))
    came = echo(tensor)
    assert type(came) is dlx.Tensor
    assert see_dlx(came) == see_dlx(tensor)


@by_table
@pytest.mark.parametrize(
    "dtype",
    f"{NUMBERS} float16 complex32 bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "float6_e2m3fn float6_e3m2fn float4_e2m1fn float32x4 int4 handle64".split(),
)
def test_every_dtype_comes_back_from_a_function(dtype: str) -> None:
    """R102 to R108: through a function of tvm-ffi."""
    memory = np.zeros(64, dtype=np.uint8)
    tensor = dlx.from_pointer(memory.ctypes.data, (2, 2), dtype, owner=memory)
    assert see_dlx(echo(tensor)) == see_dlx(tensor)


@by_table
def test_what_comes_back_holds_the_memory() -> None:
    """R15, R8: the tensor that went is gone."""
    array, alive = watched()
    came = echo(dlx.from_dlpack(array))
    del array
    gc.collect()
    assert alive() is not None
    del came
    gc.collect()
    assert alive() is None


@by_table
def test_a_function_writes_into_a_dlx_tensor() -> None:
    """R129: it gets views of the memory itself."""

    def double(source: Any, target: Any) -> None:
        np.from_dlpack(target)[:] = 2 * np.from_dlpack(source)

    array = np.zeros(3)
    source = dlx.from_dlpack(np.arange(3.0))
    function: Any = tvm_ffi.convert(double)
    function(source, dlx.from_dlpack(array))
    assert array.tolist() == [0, 2, 4]


@by_table
def test_tvm_imports_through_the_table() -> None:
    """R112: shape, strides and address are the same."""
    tensor = dlx.from_dlpack(grid().T)
    assert see_tvm(tvm_ffi.from_dlpack(tensor)) == see_dlx(tensor)
