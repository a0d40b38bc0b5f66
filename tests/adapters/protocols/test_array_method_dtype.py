"""Objects whose `__array__` makes other numbers than their dtype names."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires


class Typed:
    """What has `__array__`, and a dtype that need not be that of the array."""

    def __init__(self, array: Any, dtype: Any) -> None:
        """Keep both."""
        self.array = array
        self.dtype = dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the memory."""
        return self.array if dtype is None else self.array.astype(dtype)


class Named:
    """A dtype of a library that NumPy does not know."""

    def __init__(self, name: str) -> None:
        """Keep it."""
        self.name = name

    def __repr__(self) -> str:
        """Be written as torch's are."""
        return f"library.{self.name}"


class Printed:
    """A dtype that only its text names."""

    def __str__(self) -> str:
        """Be written as torch's are."""
        return "library.float32"


F4 = np.ones(3, "f4")
SAME: dict[str, Any] = {
    "NumPy's": F4.dtype,
    "NumPy's in another byte order": np.dtype(">f4"),
    "its type": np.float32,
    "its name": "float32",
    "its code": "<f4",
    "by a name": Named("float32"),
    "by a name without a size": Named("float"),
    "by its text": Printed(),
    "none": None,
}
OTHER: dict[str, Any] = {
    "NumPy's": np.dtype("i8"),
    "its type": np.int64,
    "its name": "int64",
    "by a name": Named("Int64"),
    "by a name without a size": Named("int"),
    "unknown": Named("category"),
    "unknown, as text": "decimal",
}


@pytest.mark.parametrize("dtype", SAME.values(), ids=SAME)
def test_an_array_of_the_dtype_of_its_object_is_taken(dtype: Any) -> None:
    """docs/convert.md: the dtype may be that of any library."""
    assert dlx.from_dlpack(Typed(F4, dtype)).data_ptr == F4.ctypes.data


@pytest.mark.parametrize("take", [dlx.from_dlpack, lambda x: dlx.convert(x, np)])
@pytest.mark.parametrize("dtype", OTHER.values(), ids=OTHER)
def test_an_array_of_another_dtype_than_its_object_is_refused(
    dtype: Any, take: Any
) -> None:
    """docs/convert.md: a conversion changes no dtype unasked; the advice gives it."""
    x = Typed(F4, dtype)
    with pytest.raises(
        BufferError, match=r"float32; pass .* numpy\.asarray\(x, dtype\)"
    ):
        take(x)
    assert dlx.from_dlpack(np.asarray(x, "i8")).tolist() == [1, 1, 1]


def test_a_table_with_a_column_of_that_name_has_no_dtype() -> None:
    """What pandas gives for it is the column."""
    pd = requires("pandas")
    frame = pd.DataFrame(np.array([[1, 2], [3, 4]]), columns=["dtype", "b"])
    assert dlx.from_dlpack(frame).tolist() == [[1, 2], [3, 4]]


MISSING = (
    "Int64 UInt8 Float32 Float64 boolean int64[pyarrow] double[pyarrow] bool[pyarrow]"
)


@pytest.mark.parametrize("dtype", MISSING.split())
def test_an_array_of_pandas_with_a_missing_value_is_refused(dtype: str) -> None:
    """DLPack has no nulls: 2**53 + 1 would be rounded, and what is missing a number."""
    pd = requires("pandas")
    if "pyarrow" in dtype:
        requires("pyarrow")
    for x in (
        pd.array([1, None, 0], dtype=dtype),
        pd.Series([1, None, 0], dtype=dtype),
        pd.Index([1, None, 0], dtype=dtype),
    ):
        with pytest.raises(BufferError, match="missing values"):
            dlx.from_dlpack(x)
        value = False if "bool" in dtype else -1
        found = dlx.from_dlpack(x.to_numpy("float64", na_value=value)).tolist()
        assert found == [1, value, 0]


@pytest.mark.parametrize("dtype", MISSING.split())
def test_an_array_of_pandas_without_one_is_taken(dtype: str) -> None:
    """Its own conversion then keeps every number."""
    pd = requires("pandas")
    if "pyarrow" in dtype:
        requires("pyarrow")
    for x in (pd.array([1, 0], dtype=dtype), pd.Index([1, 0], dtype=dtype)):
        assert dlx.from_dlpack(x).tolist() == [1, 0]


def test_nan_is_a_number_where_it_is_one() -> None:
    """Of NumPy's dtypes; categories that are missing are no numbers."""
    pd = requires("pandas")
    a = np.array([1.0, np.nan])
    assert dlx.from_dlpack(pd.array(a, dtype="float64")).tolist()[0] == 1
    assert dlx.from_dlpack(pd.Index(a)).tolist()[0] == 1
    assert dlx.from_dlpack(pd.arrays.SparseArray(a)).tolist()[0] == 1
    assert dlx.from_dlpack(pd.Categorical([7, 5, 7])).tolist() == [7, 5, 7]
    for x in (pd.Categorical([1.5, None]), pd.Categorical([2**53 + 1, None])):
        with pytest.raises(BufferError, match="missing values"):
            dlx.from_dlpack(x)


@pytest.mark.parametrize(
    "make",
    [
        "pd.Series(['a', 1])",
        "pd.DataFrame([[1, 2.5]], columns=['a', 'a'])",
        "pd.Series(pd.period_range('2026', periods=2, freq='D'))",
        "pd.Series(pd.interval_range(0, 3))",
    ],
)
def test_a_column_that_makes_no_arrow_stream_is_refused(make: str) -> None:
    """Its error, if there is one, is the cause, and the error says what to pass."""
    pd = requires("pandas")
    requires("pyarrow")
    x = eval(make, {"pd": pd})
    with pytest.raises(BufferError) as refused:
        dlx.from_dlpack(x)
    notes = getattr(refused.value, "__notes__", [])
    assert any(
        "; pass x." in text or "; pass x[" in text
        for text in (str(refused.value), *notes)
    )


def test_what_xarray_wraps_is_taken_by_its_dtype() -> None:
    """It has NumPy's, or that of pandas."""
    pd, xr = requires("pandas"), requires("xarray")
    assert dlx.from_dlpack(xr.DataArray([1.0, np.nan])).tolist()[0] == 1
    missing = xr.DataArray(pd.array([2**53 + 1, None], dtype="Int64"))
    with pytest.raises(BufferError):
        dlx.from_dlpack(missing)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_dask_computes_is_taken() -> None:
    """Its dtype is NumPy's."""
    da = requires("dask.array")
    assert dlx.from_dlpack(da.ones(3, dtype="i4")).tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("error")
def test_dask_computes_once_and_warns_of_nothing() -> None:
    """It warns of ``copy=False``, and computes all the same."""
    da, count = requires("dask.array"), []

    def block(x: Any) -> Any:
        count.append(1)
        return x + 1

    x = da.from_array(np.zeros(3)).map_blocks(block, dtype="f8", meta=np.zeros(0))
    assert dlx.convert(x, np).tolist() == [1, 1, 1]
    assert len(count) == 1
