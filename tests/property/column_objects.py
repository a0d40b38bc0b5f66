"""Columns and tables: Arrow's libraries, pandas, polars and awkward."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from interop.cases import NUMBERS, elements, ones_and_twos
from interop.making import late

from .objects import Object, Objects, made, of_dtypes, sent


def flat(dtype: str) -> Any:
    """Return 24 ones and twos."""
    return ones_and_twos(dtype).reshape(-1)


def pyarrows() -> Objects:
    """Yield arrays, which are immutable, tensors and buffers."""
    pa = late("pyarrow")
    array = pa.array
    yield from sent("pyarrow")
    yield from made(
        null=lambda: array([1.0, None]),
        no_null=lambda: array([1.0, 2.0], mask=np.array([False, False])),
        timestamp=lambda: array([1, 2], pa.timestamp("s")),
        fixed_shape=lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(elements()),
        tensor=lambda: pa.Tensor.from_numpy(elements()),
        buffer=lambda: pa.py_buffer(bytes(8)),
        mutable_buffer=lambda: pa.allocate_buffer(8),
        chunked=lambda: pa.chunked_array([array([1.0, 2.0])]),
        two_chunks=lambda: pa.chunked_array([array([1.0, 2.0]), array([3.0])]),
        bool8=lambda: pa.ExtensionArray.from_storage(
            pa.bool8(), array([1, 0], pa.int8())
        ),
    )


def nanoarrows() -> Objects:
    """Yield arrays and buffers."""
    na = late("nanoarrow")
    yield from sent("nanoarrow")
    yield from of_dtypes(
        f"{NUMBERS} float16", lambda name: na.c_buffer(flat(name)), "buffer-"
    )


def arro3s() -> Objects:
    """Yield arrays."""
    yield from sent("arro3-core")


def pandas() -> Objects:
    """Yield series, their arrays, indexes and frames."""
    pd = late("pandas")
    dtypes = (
        "int64 float32 bool Int64 Float64 boolean string category datetime64[ns] "
        "int64[pyarrow] double[pyarrow]"
    )
    for dtype in dtypes.split():
        numbers: list[Any] = [1, 0, 1] if dtype != "string" else ["a", "b", "c"]

        def series(dtype: str = dtype, numbers: Any = numbers) -> Any:
            return pd.Series(numbers, dtype=dtype)

        yield Object(dtype, series)
        yield Object(f"array-{dtype}", partial(lambda series: series().array, series))
    frame = pd.DataFrame
    yield from made(
        index=lambda: pd.Index([1.0, 2.0]),
        range=lambda: pd.RangeIndex(3),
        frame=lambda: frame(elements()),
        mixed_frame=lambda: frame({"a": [1, 2], "b": [1.0, 2.0]}),
        values=lambda: pd.Series([1.0, 2.0]).values,
        column=lambda: frame(elements())[0],
        missing=lambda: pd.Series([1, None], dtype="Int64"),
        array_missing=lambda: pd.array([2**53 + 1, None], dtype="Int64"),
        array_missing_of_arrow=lambda: pd.array([1, None], dtype="int64[pyarrow]"),
        objects=lambda: pd.Series(["a", 1]),
        sparse=lambda: pd.arrays.SparseArray([1.0, 0.0, 0.0]),
    )


def polars() -> Objects:
    """Yield series and frames."""
    pl = late("polars")
    numbers = "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64"
    others = "Int128 UInt128 Float16 Boolean String Date Decimal"

    def series(name: str) -> Any:
        return pl.Series([1, 0, 1], dtype=getattr(pl, name), strict=False)

    yield from of_dtypes(f"{numbers} {others}", series)
    two = [[1.0, 2.0], [3.0, 4.0]]
    yield from made(
        null=lambda: pl.Series([1.0, None]),
        slice=lambda: pl.Series([1.0, 2.0, 3.0])[1:],
        chunks=lambda: pl.concat([pl.Series([1.0]), pl.Series([3.0])], rechunk=False),
        array=lambda: pl.Series(two, dtype=pl.Array(pl.Float64, 2)),
        list=lambda: pl.Series([[1.0], [2.0, 3.0]]),
        frame=lambda: pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}),
        sorted=lambda: pl.Series([3.0, 1.0]).sort(),
    )


def awkwards() -> Objects:
    """Yield regular arrays and others."""
    ak = late("awkward")
    yield from of_dtypes(
        f"bool {NUMBERS} complex64 complex128",
        lambda name: ak.Array(ones_and_twos(name)),
    )
    yield from made(
        ragged=lambda: ak.Array([[1.0], [2.0, 3.0]]),
        option=lambda: ak.Array([1.0, None]),
        masked_nowhere=lambda: ak.mask(ak.Array([1.0, 2.0]), [True, True]),
    )
