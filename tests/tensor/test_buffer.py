"""CPU tensors as Python buffers, as `__array_interface__`, and as NumPy arrays."""

from __future__ import annotations

import ctypes
import hashlib
import sys
import weakref
from collections.abc import Callable
from ctypes import PYFUNCTYPE, byref, c_int, c_void_p, py_object
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from support.dlpack_abi import DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, for_ever
from support.fake_buffer import PyBuffer
from support.fake_producers import ADDRESS, Producer
from support.python_process import run_python

Array = NDArray[Any]

NAMEABLE = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
NAMELESS = [
    *("bfloat16", "complex32", "handle64", "int4", "float32x4", "uint8x2"),
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"),
    *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
]
BYTE_SIZED = [name for name in NAMELESS if name.startswith(("bfloat", "float8"))]
"""What ml_dtypes has, at least a byte wide."""
SUB_BYTE = {"float4_e2m1fn": 17, "float6_e2m3fn": 15, "float6_e3m2fn": 16, "int4": 0}
"""What ml_dtypes has, each in a byte of its own; name to code."""


get_buffer = PYFUNCTYPE(c_int, py_object, c_void_p, c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
release_buffer = PYFUNCTYPE(None, c_void_p)(("PyBuffer_Release", ctypes.pythonapi))

WRITABLE, FORMAT, ND, STRIDES = 0x1, 0x4, 0x8, 0x18
C, F, ANY, INDIRECT = 0x38, 0x58, 0x98, 0x118
EXTRAS = {"": 0, "w": WRITABLE, "f": FORMAT, "wf": WRITABLE | FORMAT}
BASES = {"simple": 0, "nd": ND, "strides": STRIDES, "c": C, "f": F, "any": ANY}
REQUESTS = {
    f"{name} {flag}".strip(): base | extra
    for name, base in (BASES | {"indirect": INDIRECT}).items()
    for flag, extra in EXTRAS.items()
}


def view(source: Any, flags: int) -> dict[str, Any] | None:
    """What a request gets, of what means anything; None if it is refused."""
    buffer = PyBuffer()
    try:
        get_buffer(source, byref(buffer), flags)
    except (BufferError, ValueError):  # NumPy raises either.
        return None
    got = {field[0]: getattr(buffer, field[0]) for field in PyBuffer._fields_}
    for name in ("shape", "strides", "suboffsets"):
        got[name] = got[name][: buffer.ndim] if got[name] else None
    release_buffer(byref(buffer))
    if got["shape"] is None:
        del got["ndim"]  # NumPy says 0 then, CPython's documentation the true number.
    if got["len"] == 0:
        got["buf"] = None  # R93.
    if got["strides"]:
        pairs = zip(got["strides"], got["shape"], strict=True)  # R99.
        got["strides"] = [step for step, n in pairs if n > 1 and got["len"] > 0]
    return {name: got[name] for name in got if name not in ("obj", "internal")}


def base() -> Array:
    """Twenty-four different elements."""
    return np.arange(24, dtype="int32").reshape(4, 6)


LAYOUTS: dict[str, Callable[[], Array]] = {
    "row-major": base,
    "column-major": lambda: base().T,
    "rows apart": lambda: base()[::2],
    "negative": lambda: base()[::-1, ::-1],
    "broadcast": lambda: as_strided(base(), (3, 4), (0, 4)),
    "both orders": lambda: base()[0],
    "three dimensions": lambda: base().reshape(2, 3, 4).transpose(1, 2, 0),
    "extent 1": lambda: base()[:1, :1],
    "no dimensions": lambda: base()[0, 0:1].reshape(()),
    "no elements": lambda: np.empty((0, 3), "int32"),
    "read-only": lambda: np.broadcast_to(base(), (4, 6)),
    "read-only and strided": lambda: np.broadcast_to(base(), (4, 6))[:, ::2],
}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_request_gets_what_numpy_gives(layout: str, request_name: str) -> None:
    """CPython's `bf_getbuffer`, of which NumPy has the reference implementation."""
    array = LAYOUTS[layout]()
    flags = REQUESTS[request_name]
    assert view(dlx.from_dlpack(array), flags) == view(array, flags)


@pytest.mark.parametrize(
    ("layout", "request_name"),
    [
        ("read-only", "simple w"),
        ("column-major", "simple"),
        ("column-major", "c"),
        ("row-major", "f"),
        ("rows apart", "any"),
    ],
)
def test_a_request_that_the_layout_does_not_meet_is_a_buffer_error(
    layout: str, request_name: str
) -> None:
    """CPython's `bf_getbuffer`: BufferError, and `obj` is NULL."""
    tensor = dlx.from_dlpack(LAYOUTS[layout]())
    buffer = PyBuffer(obj=ADDRESS)
    with pytest.raises(BufferError, match=r"read-only|contiguous"):
        get_buffer(tensor, byref(buffer), REQUESTS[request_name])
    assert buffer.obj is None


@pytest.mark.parametrize(("flags", "ndim"), [(0, 1), (ND, 2)])
def test_without_a_shape_a_buffer_is_a_run_of_bytes(flags: int, ndim: int) -> None:
    """As ``memoryview``: who asks for no shape reads bytes, as hashlib does."""
    buffer = PyBuffer()
    get_buffer(dlx.from_dlpack(base()), byref(buffer), flags)
    assert buffer.ndim == ndim
    release_buffer(byref(buffer))


def test_hashlib_reads_tensors_of_any_shape() -> None:
    """`hashlib.sha256`: it takes objects with a buffer, of one dimension."""
    for shape in ((), (6,), (2, 3), (1, 2, 3)):
        array = np.ones(shape)
        found = hashlib.sha256(dlx.from_dlpack(array)).digest()
        assert found == hashlib.sha256(array.tobytes()).digest()


def test_odd_strides_without_elements_are_contiguous_both_ways() -> None:
    """R99; CPython: what has no bytes is contiguous."""
    tensor = dlx.from_pointer(0, (0, 3), "int8", strides=(7, 5))
    for flags in (C, F, ANY, 0):
        assert view(tensor, flags)


@pytest.mark.parametrize("strides", [(0,), (-1,), (7,), None])
def test_a_buffer_without_elements_is_contiguous_for_everybody(
    strides: tuple[int] | None,
) -> None:
    """R99: CPython calls one dimension contiguous by its stride alone."""
    tensor: Any = dlx.from_pointer(0, (0,), "float32", strides=strides)
    assert tensor.strides == (strides or (1,))
    assert memoryview(tensor).strides == (4,)
    assert memoryview(tensor).cast("B").nbytes == 0
    assert np.frombuffer(tensor, "f4").shape == (0,)


def test_an_empty_array_is_read_by_frombuffer() -> None:
    """NumPy's arrays without elements may have any strides."""
    tensor: Any = dlx.from_dlpack(as_strided(np.zeros(3), (0,), (0,)))
    assert np.frombuffer(tensor).shape == (0,)


@pytest.mark.parametrize("name", NAMEABLE)
def test_the_format_is_numpys(name: str) -> None:
    """CPython's `Py_buffer`; also where C has two types of a size."""
    array = np.ones(3, name)
    assert memoryview(dlx.from_dlpack(array)).format == array.data.format


@pytest.mark.parametrize("name", NAMEABLE)
def test_asarray_gives_the_dtype_and_the_memory(name: str) -> None:
    """R49, R102 to R104: `np.asarray` of a tensor over each dtype of NumPy."""
    array = np.ones((2, 3), name)
    shown = np.asarray(dlx.from_dlpack(array))
    assert shown.dtype == array.dtype
    assert shown.ctypes.data == array.ctypes.data


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("show", [np.asarray, dlx.Tensor.numpy])
def test_a_numpy_array_has_the_layout_and_the_elements(
    show: Callable[[dlx.Tensor], Array], layout: str
) -> None:
    """R97, R98; R42 for the read-only flag."""
    array = LAYOUTS[layout]()
    shown = show(dlx.from_dlpack(array))
    assert (shown.shape, shown.strides) == (array.shape, array.strides)
    assert shown.flags.writeable == array.flags.writeable
    assert np.array_equal(shown, array)


def test_what_is_written_through_the_array_is_in_the_source() -> None:
    """R49: the buffer shares the memory."""
    array = base()
    np.asarray(dlx.from_dlpack(array))[1, 2] = 99
    assert array[1, 2] == 99


class Interface:
    """An object with no other way to its memory."""

    def __init__(self, tensor: dlx.Tensor) -> None:
        """Show `tensor`."""
        self.tensor = tensor

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The tensor's own."""
        return self.tensor.__array_interface__


@pytest.mark.parametrize("name", NAMEABLE)
def test_the_array_interface_has_numpys_typestr(name: str) -> None:
    """NumPy's array interface, version 3."""
    tensor = dlx.from_dlpack(np.ones(3, name))
    assert tensor.__array_interface__["typestr"] == np.dtype(name).str


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_array_interface_describes_the_layout(layout: str) -> None:
    """NumPy's array interface, version 3."""
    array = LAYOUTS[layout]()
    address = array.ctypes.data if array.size else 0
    assert dlx.from_dlpack(array).__array_interface__ == {
        "version": 3,
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (address, not array.flags.writeable),
        "strides": None if array.flags.c_contiguous else array.strides,
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_reads_the_array_interface(layout: str) -> None:
    """NumPy's array interface, version 3."""
    array = LAYOUTS[layout]()
    assert np.array_equal(np.asarray(Interface(dlx.from_dlpack(array))), array)


@pytest.mark.parametrize("show", [memoryview, np.asarray, dlx.Tensor.numpy])
def test_a_buffer_keeps_the_tensor_alive(show: Callable[[Any], Any]) -> None:
    """R15: a view of it is the last to hold the tensor."""
    tensor = dlx.from_dlpack(base()[:, ::2])
    alive = weakref.ref(tensor)
    shown = show(tensor)
    del tensor
    assert alive() is not None
    del shown
    assert alive() is None


def test_releasing_a_buffer_gives_the_references_back() -> None:
    """CPython's `bf_releasebuffer`; memory is in `test_lifetime.py`."""
    tensor = dlx.from_dlpack(base()[:, ::2])
    before = sys.getrefcount(tensor)
    with memoryview(tensor):
        assert sys.getrefcount(tensor) == before + 1
    assert sys.getrefcount(tensor) == before


@pytest.mark.parametrize("name", NAMELESS)
def test_a_dtype_without_a_format_is_refused(name: str) -> None:
    """R63: not as bytes, not as an array of objects."""
    tensor = dlx.from_pointer(ADDRESS, (2,), name)
    with pytest.raises(BufferError, match=f"{name};"):
        memoryview(tensor)
    with pytest.raises(AttributeError, match=f"{name};"):
        _ = tensor.__array_interface__
    if not hasattr(ml_dtypes, name) or name in SUB_BYTE:
        with pytest.raises(BufferError, match=name):
            np.asarray(tensor)


@pytest.mark.parametrize("device", ["cuda:0", "cuda_managed:0", "metal:0"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "show",
    [
        *(memoryview, bytes, np.asarray, np.array, dlx.Tensor.numpy),
    ],
)
def test_memory_of_a_device_is_refused(
    show: Callable[[Any], Any], dtype: str, device: str
) -> None:
    """R63: `np.asarray` makes no array of objects of it."""
    with pytest.raises(BufferError, match=device):
        show(dlx.from_pointer(ADDRESS, (2,), dtype, device=device))
    with pytest.raises(AttributeError, match=device):
        _ = dlx.from_pointer(ADDRESS, (2,), dtype, device=device).__array_interface__


@pytest.mark.parametrize("name", BYTE_SIZED)
@pytest.mark.parametrize("show", [np.asarray, dlx.Tensor.numpy])
def test_numpy_gives_a_dtype_of_ml_dtypes(
    show: Callable[[Any], Any], name: str
) -> None:
    """`help(dlx.Tensor.numpy)`; R106 for fp8, R42 for the read-only flag."""
    array = np.array([[0.5, 1, 2], [4, 1, 0.5]]).astype(getattr(ml_dtypes, name)).T
    tensor = dlx.from_pointer(
        array.ctypes.data, array.shape, name, strides=(1, 3), owner=array, readonly=True
    )
    shown = show(tensor)
    assert (shown.dtype, shown.strides) == (array.dtype, array.strides)
    assert shown.astype("float64").tolist() == [[0.5, 4], [1, 1], [2, 0.5]]
    assert shown.ctypes.data == array.ctypes.data
    assert not shown.flags.writeable


def sub_byte(name: str, array: Array, flags: int) -> dlx.Tensor:
    """The bytes of `array` as a tensor of sub-byte elements."""
    memory = for_ever(array).view("uint8")
    dtype = (SUB_BYTE[name], int(name.split("_")[0][-1]), 1)
    return dlx.from_dlpack(
        Producer(memory=memory, shape=array.shape, dtype=dtype, flags=flags)
    )


@pytest.mark.parametrize("name", SUB_BYTE)
def test_numpy_gives_padded_elements_as_ml_dtypes(name: str) -> None:
    """R44, R45: ml_dtypes has one element in each byte, as the flag says."""
    array = np.array([1, 2, 4, 0]).astype(getattr(ml_dtypes, name))
    shown = sub_byte(name, array, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED).numpy()
    assert shown.dtype == array.dtype
    assert shown.astype("float64").tolist() == [1, 2, 4, 0]


@pytest.mark.parametrize("name", SUB_BYTE)
def test_numpy_refuses_packed_elements(name: str) -> None:
    """R45: packed is never read as padded."""
    array = np.zeros(4, getattr(ml_dtypes, name))
    with pytest.raises(BufferError, match="packed"):
        sub_byte(name, array, 0).numpy()


@pytest.mark.parametrize("name", ["float32x4", "bfloat16x2", "handle64"])
def test_numpy_refuses_what_no_dtype_says(name: str) -> None:
    """R108: dtypes with lanes, and those that NumPy lacks."""
    with pytest.raises(BufferError, match=name):
        dlx.from_pointer(ADDRESS, (2,), name).numpy()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bfloat16", "NumPy cannot represent bfloat16: ml_dtypes does not have it"),
        ("float8_e5m2", "NumPy cannot represent float8_e5m2: ml_dtypes does not"),
        ("int8", "[0, 0]"),
    ],
)
def test_numpy_needs_ml_dtypes_only_for_its_dtypes(name: str, said: str) -> None:
    """`help(dlx.Tensor.numpy)`: BufferError where ml_dtypes is not installed."""
    code, out, _ = run_python(
        f"""
        import sys

        sys.modules["ml_dtypes"] = None
        import dlx
        import numpy as np

        array = np.zeros(2, "uint16")
        tensor = dlx.from_pointer(array.ctypes.data, (2,), {name!r}, owner=array)
        try:
            print(tensor.numpy().tolist())
        except BufferError as error:
            print(error)
        """
    )
    assert code == 0
    assert out.startswith(said)
