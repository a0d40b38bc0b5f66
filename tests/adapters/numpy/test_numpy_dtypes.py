"""The dtypes of NumPy arrays: which come in, and why others do not."""

from __future__ import annotations

import importlib
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from support.dlpack_abi import DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, exported

PADDED = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
NUMBERS = "?bBhHiIlLqQpPefdFD"
SCALARS = [value for value in vars(ml_dtypes).values() if isinstance(value, type)]
LATER = ["bcomplex32"]
"""What only a DLPack after 1.3 has: `tests/import/test_later_versions.py`."""
KNOWN = sorted(
    scalar.__name__
    for scalar in SCALARS
    if issubclass(scalar, np.generic) and scalar.__name__ not in LATER
)
of_ml_dtypes = pytest.mark.parametrize("name", KNOWN)


def dtype_of(name: str) -> np.dtype[Any]:
    """Dtype of ml_dtypes."""
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


@pytest.mark.parametrize("char", NUMBERS)
def test_a_number_comes_in_under_its_name(char: str) -> None:
    """R102 to R104: C's `long` and `long long` are integers of their widths."""
    array = np.arange(6).reshape(2, 3).astype(char)
    tensor = dlx.from_dlpack(array)
    assert tensor.dtype == array.dtype.name
    assert tensor.dtype == dlx.from_dlpack(array.__dlpack__()).dtype
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    "dtype",
    ["<i4" if np.little_endian else ">i4", "=i4", np.dtype("i4", metadata={"a": 1})],
)
def test_the_native_byte_order_has_several_names(dtype: Any) -> None:
    """R101: the machine's own, "=", and a dtype that has metadata."""
    assert dlx.from_dlpack(np.zeros(2, dtype)).dtype == "int32"


@of_ml_dtypes
def test_a_type_of_ml_dtypes_comes_in_under_its_name(name: str) -> None:
    """R102, R105, R106: the first time and later."""
    array = np.zeros(2, dtype_of(name))
    assert dlx.from_dlpack(array).dtype == name
    assert dlx.from_dlpack(array).dtype == name


@of_ml_dtypes
def test_a_type_of_ml_dtypes_goes_back_as_it_came(name: str) -> None:
    """R42, R44: with a stride, so that elements are where they should be."""
    array = np.array([0, 1, 0, 0, 1, 1]).astype(dtype_of(name))[::2]
    back = dlx.from_dlpack(array).numpy()
    assert (back.dtype, back.strides) == (array.dtype, array.strides)
    assert back.tobytes() == array.tobytes()


@of_ml_dtypes
def test_elements_of_ml_dtypes_below_a_byte_are_padded(name: str) -> None:
    """R44: each fills a byte, and only those have the flag."""
    tensor = dlx.from_dlpack(np.zeros(3, dtype_of(name)))
    below = tensor.dtype.bits < 8
    assert exported(tensor).flags == (PADDED if below else 0)
    assert tensor.nbytes == 3 * tensor.itemsize


REFUSED = {
    "longdouble": "g",
    "clongdouble": "G",
    "object": "O",
    "bytes": "S3",
    "str": "U3",
    "void": "V3",
    "datetime64": "M8[s]",
    "timedelta64": "m8[s]",
}


@pytest.mark.parametrize(("name", "dtype"), REFUSED.items(), ids=REFUSED)
@pytest.mark.parametrize("shape", [(), (2,), (0,)])
@pytest.mark.parametrize("copy", [None, True])
def test_a_type_that_dlpack_has_not_is_refused(
    name: str, dtype: str, shape: tuple[int, ...], copy: bool | None
) -> None:
    """R63, R102: elements or not, copy or not."""
    with pytest.raises(BufferError, match=f"of type {name}; expected bool"):
        dlx.from_dlpack(np.zeros(shape, dtype), copy=copy)


@pytest.mark.parametrize("dtype", ["U3", "M8[s]", "m8[s]", "i4,f8", "V3"])
def test_a_scalar_is_refused_in_the_words_of_an_array(dtype: str) -> None:
    """R63: none of letters of a protocol."""
    x = np.zeros((), dtype)
    words = []
    for each in (x, x[()]):
        with pytest.raises(BufferError) as refused:
            dlx.from_dlpack(each)
        words.append(str(refused.value))
    assert words[0] == words[1]


@pytest.mark.parametrize("kind", [np.ndarray, np.recarray])
def test_a_structured_array_is_refused_and_its_fields_are_not(kind: type[Any]) -> None:
    """R63, R92: a field has strides that suit its itemsize."""
    array = np.zeros(3, [("a", "i4"), ("b", "f4")]).view(kind)
    with pytest.raises(BufferError, match="type void"):
        dlx.from_dlpack(array)
    assert dlx.from_dlpack(array["b"]).strides == (2,)


@pytest.mark.parametrize("char", "hHiIlLqQefdFD")
def test_a_foreign_byte_order_is_refused(char: str) -> None:
    """R101: and what to pass instead."""
    array: NDArray[Any] = np.arange(3).astype(np.dtype(char).newbyteorder("S"))
    with pytest.raises(BufferError, match=r"byte order '[<>]'; expected native"):
        dlx.from_dlpack(array)
    native = array.astype(array.dtype.newbyteorder("="))
    assert dlx.from_dlpack(native).dtype == np.dtype(char).name


def test_strings_of_variable_length_are_refused() -> None:
    """R63: the error names their type."""
    strings = pytest.importorskip("numpy", "2.0").dtypes.StringDType()
    with pytest.raises(BufferError, match="type StringDType"):
        dlx.from_dlpack(np.array(["a", "b"], strings))


def test_a_type_of_another_package_is_refused() -> None:
    """R102: whatever its number."""
    tests = "numpy._core._rational_tests", "numpy.core._rational_tests"
    rational = importlib.import_module(tests[np.__version__ < "2"]).rational
    with pytest.raises(BufferError, match="type rational; expected"):
        dlx.from_dlpack(np.zeros(2, rational))


@pytest.mark.parametrize(
    ("x", "advice", "follow"),
    [
        (np.array(["1970-01-03"], "M8[D]"), r"x\.astype\('int64'\)", None),
        (np.array([2], "m8[s]"), r"x\.astype\('int64'\)", None),
        (np.array([2], "g"), r"x\.astype\('float64'\)", None),
        (np.array([2], "G"), r"x\.astype\('complex128'\)", None),
        (np.array([2], object), r"x\.astype\(dtype\), if", "x.astype('float32')"),
        (np.array([(2,)], "f4,"), r"a field, x\['name'\]", "x['f0']"),
    ],
)
def test_what_dlpack_lacks_comes_with_advice(
    x: Any, advice: str, follow: str | None
) -> None:
    """R63: which leads to the numbers."""
    with pytest.raises(BufferError, match=rf"pass {advice}"):
        dlx.from_dlpack(x)
    follow = follow or advice.replace("\\", "")
    assert np.asarray(dlx.from_dlpack(eval(follow))).tolist() == [2]
