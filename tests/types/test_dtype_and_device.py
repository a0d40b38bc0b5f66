"""`dlx.DType`, `dlx.Device` and `dlx.DeviceType`."""

from __future__ import annotations

import copy
import enum
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from support.fake_producers import ADDRESS
from support.optional_libraries import requires

FP8 = "e3m4 e4m3 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 e5m2fnuz e8m0fnu"
DTYPES = {
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "handle64": (3, 64),
    "bfloat16": (4, 16),
    **{f"complex{bits}": (5, bits) for bits in (32, 64, 128)},
    "bool": (6, 8),
    **{f"float8_{form}": (code, 8) for code, form in enumerate(FP8.split(), 7)},
    "float6_e2m3fn": (15, 6),
    "float6_e3m2fn": (16, 6),
    "float4_e2m1fn": (17, 4),
}
"""Name to code and bits: every code of dlpack.h 1.3."""

KINDS = {
    **{"CPU": 1, "CUDA": 2, "CUDA_HOST": 3, "OPENCL": 4, "VULKAN": 7, "METAL": 8},
    **{"VPI": 9, "ROCM": 10, "ROCM_HOST": 11, "EXT_DEV": 12, "CUDA_MANAGED": 13},
    **{"ONEAPI": 14, "WEBGPU": 15, "HEXAGON": 16, "MAIA": 17, "TRN": 18},
    **{"TPU": 19, "TPU_HOST": 20, "ASCEND": 21},
}
"""Name to `DLDeviceType` of dlpack.h, the last three after 1.3."""

ROUND_TRIPS: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *[
        partial(lambda protocol, value: pickle.loads(pickle.dumps(value, protocol)), n)
        for n in range(pickle.HIGHEST_PROTOCOL + 1)
    ],
]
each_dtype = pytest.mark.parametrize("name", DTYPES)


def test_every_code_of_dlpack_is_tested_here() -> None:
    """R31, R102: 0 to 17."""
    assert {code for code, _ in DTYPES.values()} == set(range(18))


@each_dtype
def test_a_name_has_its_code_and_bits(name: str) -> None:
    """R102 to R106: the names of `DType`, against the header's values."""
    dtype = dlx.DType(name)
    assert (dtype.code, dtype.bits, dtype.lanes) == (*DTYPES[name], 1)


@each_dtype
@pytest.mark.parametrize("lanes", [1, 2, 4, 65535])
def test_a_triple_has_its_name(name: str, lanes: int) -> None:
    """R102, R108: with lanes, as in "float32x4"."""
    dtype = dlx.DType((*DTYPES[name], lanes))
    assert str(dtype) == dtype.name == (name if lanes == 1 else f"{name}x{lanes}")


@each_dtype
@pytest.mark.parametrize("lanes", ["", "x2", "x65535"])
def test_a_name_reads_back_as_the_same_dtype(name: str, lanes: str) -> None:
    """R102, R108: whatever `str()` gives, `dlx.DType` takes."""
    assert str(dlx.DType(name + lanes)) == name + lanes


@pytest.mark.parametrize("name", ["int8", "float32x4", "float4_e2m1fn"])
def test_a_dtype_equals_its_name_and_hashes_as_it(name: str) -> None:
    """`help(dlx.DType)`; the data model: what is equal has the same hash."""
    dtype = dlx.DType(name)
    assert dtype == name
    assert name == dtype
    assert hash(dtype) == hash(name)


def test_a_dtype_equals_another_of_the_same_triple() -> None:
    """R102: code, bits and lanes are all of it."""
    assert dlx.DType("float32x2") == dlx.DType((2, 32, 2))
    assert hash(dlx.DType("float32x2")) == hash(dlx.DType((2, 32, 2)))


@pytest.mark.parametrize(
    "other", [dlx.DType("float16"), dlx.DType("float32x2"), "float16", "", 3, None]
)
def test_a_dtype_differs_from_everything_else(other: object) -> None:
    """The data model: `==` answers False, not None."""
    assert (dlx.DType("float32") == other) is False
    assert (dlx.DType("float32") != other) is True


def test_a_dtype_leaves_the_answer_to_what_it_does_not_know() -> None:
    """The data model: `NotImplemented` asks the other operand."""

    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert (dlx.DType("float32") == Equal()) is True


def test_dtypes_have_no_order() -> None:
    """The data model: no ordering is a TypeError."""
    with pytest.raises(TypeError):
        sorted([dlx.DType("int8"), dlx.DType("int16")])  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (np.float32, "float32"),
        (np.bool_, "bool"),
        (np.dtype("float64"), "float64"),
        (np.dtype("bool"), "bool"),
        (np.dtype(np.longlong), "int64"),
        (np.dtype("complex128"), "complex128"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.bfloat16), "bfloat16"),
        (np.dtype(ml_dtypes.int4), "int4"),
        *[
            (np.dtype(getattr(ml_dtypes, name)), name)
            for name in DTYPES
            if "_e" in name
        ],
        (dlx.DType("uint8"), "uint8"),
        ((dlx.DeviceType.CUDA, np.uint8(32), 1), "float32"),
    ],
)
def test_a_dtype_object_of_numpy_or_ml_dtypes_is_understood(
    spec: Any, name: str
) -> None:
    """`help(dlx.DType)`: takes the dtype objects of NumPy and ml_dtypes."""
    assert dlx.DType(spec) == name


@pytest.mark.parametrize(
    "name", ["float32", "bfloat16", "complex32", "bool", "uint16", "float8_e8m0fnu"]
)
def test_a_dtype_object_of_torch_is_understood(name: str) -> None:
    """`help(dlx.DType)`: takes the dtype objects of torch."""
    assert dlx.DType(getattr(requires("torch"), name)) == name


NO_DTYPES = (
    "|float33|float128|longdouble|>f4|S3|Float32| float32|float32 |float32x|float32x0"
    "|float32x1|float32x-2|float32x+2|float32x02|float32x65536|float32x2x2|float8"
    "|float8_e4m3f|float4_e2m1fn_x2|bool8|int9|code99_0|object|f4,f4|(2,)f4"
)


@pytest.mark.parametrize("name", NO_DTYPES.split("|"))
def test_a_name_of_no_dtype_is_a_value_error(name: str) -> None:
    """R102 to R106; R101 for the foreign byte order."""
    with pytest.raises(ValueError, match="not a dtype"):
        dlx.DType(name)


@pytest.mark.parametrize(
    "spec", [float, int, bool, complex, "f4", "d", "half", "int", "?"], ids=repr
)
def test_what_numpy_takes_for_a_dtype_is_one(spec: Any) -> None:
    """`help(dlx.DType)`: where NumPy is installed."""
    assert dlx.DType(spec) == np.dtype(spec).name


@pytest.mark.parametrize(
    "triple",
    [
        *[(256, 8, 1), (-1, 8, 1)],
        *[(2, 8, 1), (2, 33, 1), (2, 300, 1), (2, 32, 0), (2, 32, 65536)],
        *[(5, 16, 1), (6, 1, 1), (10, 4, 1), (15, 8, 1), (17, 8, 1)],
    ],
)
def test_a_triple_of_no_dtype_is_a_value_error(triple: tuple[int, int, int]) -> None:
    """R31, R102 to R106: no code, or bits that the code has not."""
    with pytest.raises(ValueError, match="dtype"):
        dlx.DType(triple)


@pytest.mark.parametrize(
    "spec",
    [
        np.dtype(">f4"),
        np.dtype("longdouble"),
        np.dtype("U3"),
        np.dtype([("field", "f4")]),
        np.dtype(("f4", (2,))),
        np.dtype("datetime64[s]"),
        None,
        3,
        2.0,
        b"float32",
        (2, 32),
        (2.0, 32, 1),
        pytest.param(object(), id="object"),
        str,
        list,
        np.longdouble,
    ],
    ids=repr,
)
def test_what_names_no_dtype_is_a_type_error(spec: Any) -> None:
    """`help(dlx.DType)`; R101 for the foreign byte order."""
    with pytest.raises(TypeError):
        dlx.DType(spec)


def test_a_dtype_prints_as_its_construction() -> None:
    """The data model: `repr()` is an expression of the same value."""
    dtype = dlx.DType("float32x4")
    assert repr(dtype) == "dlx.DType('float32x4')"
    assert eval(repr(dtype), {"dlx": dlx}) == dtype


SIZES = {"float4_e2m1fn": 1, "float4_e2m1fnx3": 2, "float32x4": 16, "complex128": 16}


@pytest.mark.parametrize(("dtype", "itemsize"), SIZES.items())
def test_itemsize_is_rounded_up_to_a_byte(dtype: str, itemsize: int) -> None:
    """R104, R110: of the dtype and of a tensor of it."""
    assert dlx.DType(dtype).itemsize == itemsize
    assert dlx.from_pointer(ADDRESS, (3,), dtype).itemsize == itemsize


def test_device_type_is_an_int_enum_of_the_header() -> None:
    """R67: all names and values."""
    assert issubclass(dlx.DeviceType, enum.IntEnum)
    assert {kind.name: kind.value for kind in dlx.DeviceType} == KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [0, 3])
def test_a_device_has_its_type_id_and_name(kind: str, index: int) -> None:
    """R64, R67; the CPU has no number."""
    device = dlx.Device(KINDS[kind], index)
    assert (device.type, device.id) == (dlx.DeviceType[kind], index)
    name = "cpu" if (kind, index) == ("CPU", 0) else f"{kind.lower()}:{index}"
    assert str(device) == name
    assert repr(device) == f"dlx.Device('{name}')"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("suffix", "index"), [("", 0), (":0", 0), (":7", 7)])
def test_a_device_name_is_read(kind: str, suffix: str, index: int) -> None:
    """R67: the index may be left out."""
    assert dlx.Device(kind.lower() + suffix) == dlx.Device(KINDS[kind], index)


@pytest.mark.parametrize(
    "arguments",
    [
        *[("cuda:1",), (2, 1), (dlx.DeviceType.CUDA, 1), (dlx.Device(2, 1),)],
        *[((2, 1),), (("cuda", 1),), ("cuda", 1)],
    ],
)
def test_a_device_equals_its_name_and_hashes_as_it(arguments: Any) -> None:
    """`help(dlx.Device)`; the data model: what is equal has the same hash."""
    device, name = dlx.Device(*arguments), "cuda:1"
    assert device == dlx.Device(name)
    assert device == name
    assert name == device
    assert hash(device) == hash(name) == hash(dlx.Device(name))
    assert {name: "found"}[device] == "found"  # type: ignore[index]


@pytest.mark.parametrize(
    "other",
    [
        *[dlx.Device("cuda:1"), dlx.Device("cpu"), "cuda:1", "x", (2, 1), 2, None],
        # Spellings that hash otherwise, and a pair, which no name can hash as.
        *["cuda", "cuda:00", (2, 0), (dlx.DeviceType.CUDA, 0)],
    ],
)
def test_a_device_differs_from_everything_else(other: object) -> None:
    """The data model: `==` answers False, not None."""
    assert (dlx.Device("cuda:0") == other) is False
    assert (dlx.Device("cuda:0") != other) is True


NO_DEVICES = (
    "|gpu|CUDA| cpu|cuda:|cuda:-1|cuda:+1|cuda:01|cuda: 1|cuda:1:2|cuda:9999999999"
)


@pytest.mark.parametrize(
    "arguments",
    [
        *[(name,) for name in NO_DEVICES.split("|")],
        *[(0,), (5,), (-1,), (2**40,)],
        *[(2, -1), (2, 2**40), ((2, -1),), ((2, 2**40),), ((5, 0),)],
        *[(("gpu", 0),), (("cuda:0", 0),), (("CUDA", 0),), (("cuda", -1),)],
    ],
)
def test_a_device_that_dlpack_does_not_know_is_a_value_error(arguments: Any) -> None:
    """R31, R67: by name or by number."""
    with pytest.raises(ValueError, match="device"):
        dlx.Device(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        *[(), (None,), (1.0,), (b"cpu",), ((2,),), ((2, 0, 0),), ("cuda", "1")],
        *[((2, 0), 1), (("cuda",),), (("cuda", "0"),), ((b"cuda", 0),)],
    ],
)
def test_what_names_no_device_is_a_type_error(arguments: Any) -> None:
    """`help(dlx.Device)`: a name, or a type and an id."""
    with pytest.raises(TypeError):
        dlx.Device(*arguments)


VALUES = [
    *dlx.DeviceType,
    *map(dlx.Device, ["cpu", "cuda:3"]),
    *map(dlx.DType, [*DTYPES, "int8x3"]),
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("again", ROUND_TRIPS)
def test_a_value_survives_copying_and_pickling(
    again: Callable[[Any], Any], value: Any
) -> None:
    """The modules `copy` and `pickle`, in all protocols."""
    assert type(again(value)) is type(value)
    assert again(value) == value


@pytest.mark.parametrize(
    ("value", "attributes"),
    [
        (dlx.DType("int8"), ["code", "bits", "lanes", "name", "itemsize", "new"]),
        (dlx.Device("cpu"), ["type", "id", "new"]),
    ],
)
def test_a_value_is_immutable(value: Any, attributes: list[str]) -> None:
    """Its hash must not change."""
    for attribute in attributes:
        with pytest.raises(AttributeError):
            setattr(value, attribute, 1)


new_numpy = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.4.0",
    reason="NumPy 2.4 is the first that asks for __numpy_dtype__",
)


@new_numpy
@pytest.mark.parametrize("name", ["float32", "complex128", "bool", "bfloat16", "int4"])
def test_numpy_takes_a_dtype_of_dlx_for_its_own(name: str) -> None:
    """NumPy's `__numpy_dtype__`; ml_dtypes has what NumPy has not."""
    found = np.dtype(dlx.DType(name))
    assert (found.name, np.zeros(2, found).dtype) == (name, found)


@new_numpy
def test_numpy_knows_the_dtype_of_a_tensor() -> None:
    """NumPy's `__numpy_dtype__`, also as JAX asks: `jnp.asarray(t)`."""
    assert np.result_type(dlx.from_dlpack(np.ones(3, "float32"))) == np.float32


@pytest.mark.parametrize("name", ["float32x4", "handle64"])
def test_a_dtype_that_numpy_lacks_is_absent_there(name: str) -> None:
    """`hasattr` tells, and NumPy says what it cannot interpret."""
    with pytest.raises(AttributeError, match="NumPy has no dtype"):
        _ = dlx.DType(name).__numpy_dtype__
    with pytest.raises(TypeError):
        np.dtype(dlx.DType(name))
