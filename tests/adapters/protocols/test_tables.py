"""Columns and tables: taken or refused by dtype, not by how they lie in memory."""

from __future__ import annotations

import sys
import timeit
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

WANT = [[1, 3], [2, 4]]
LIBRARIES = {"pd": "pandas", "pl": "polars"}

TABLES = [
    "pd.DataFrame({'a': [1., 2.], 'b': [3., 4.]})",
    "pd.DataFrame({'a': [1, 2]}).assign(b=[3, 4])",
    "pd.concat([pd.DataFrame({'a': [1, 2]}), pd.DataFrame({'b': [3, 4]})], axis=1)",
    "pd.DataFrame({'a': [1, 2], 's': ['x', 'y'], 'b': [3, 4]})[['a', 'b']]",
    "pd.DataFrame({'a': [2, 1], 'b': [4, 3]}, index=['y', 'x'])[::-1]",
    "pd.DataFrame([[1, 3], [2, 4]], columns=['a', 'a'])",
    "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, dtype='Int64')",
    "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, dtype='int8[pyarrow]')",
    "pd.DataFrame({'dtype': [1, 2], 'dtypes': [3, 4]})",
    "pl.DataFrame({'a': [1., 2.], 'b': [3., 4.]})",
    "pl.DataFrame(np.asfortranarray([[1, 3], [2, 4]]))",
    "pl.DataFrame({'a': [1, 2, 9], 'b': [3, 4, 9]}).filter(pl.col.a < 5)",
    "pl.DataFrame({'a': [2, 1], 'b': [4, 3]}).reverse()",
    "pl.concat([pl.DataFrame({'a': [i], 'b': [i + 2]}) for i in (1, 2)])",
    "pl.DataFrame({'a': [1], 'b': [3]}).vstack(pl.DataFrame({'a': [2], 'b': [4]}))",
]
OTHERS = [
    "pd.DataFrame({'a': [1, 2], 'b': [3., 4.]})",
    "pd.DataFrame({'a': [1, 2], 'b': [True, False]})",
    "pd.DataFrame({'a': pd.array([2**53 + 1, 2]), 'b': [3, 4]})",
    "pd.DataFrame({'a': [1., None], 'b': [3., 4.]}, dtype='Float64')",
    "pd.DataFrame({'a': [2**53 + 1, None], 'b': [3, 4]}, dtype='Int64')",
    "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, dtype=object)",
    "pl.DataFrame({'a': [1, 2], 'b': [3., 4.]})",
    "pl.DataFrame({'a': [1., None], 'b': [3., 4.]})",
    "pl.DataFrame({'a': [1, None]})",
    "pl.DataFrame({'a': ['1', '2']})",
    "pl.DataFrame({'a': [2**70]}, schema={'a': pl.Int128})",
    "pl.DataFrame({'a': []}, schema={'a': pl.Int128})",
]


def made(code: str) -> Any:
    """Make the table with its library."""
    if "pyarrow" in code:
        requires("pyarrow")
    return eval(code, {"np": np, code[:2]: requires(LIBRARIES[code[:2]])})


@pytest.mark.parametrize("code", TABLES)
def test_a_table_of_one_dtype_is_a_matrix(code: str) -> None:
    """However its columns lie."""
    x = made(code)
    for found in (dlx.convert(x, np), dlx.convert_tree([x], np)[0]):
        assert found.tolist() == WANT
        assert str(found.dtype) in str(next(iter(x.dtypes))).lower()


@pytest.mark.parametrize("code", OTHERS)
def test_another_table_is_refused(code: str) -> None:
    """Of several dtypes, with missing values, or without numbers."""
    with pytest.raises(BufferError) as refused:
        dlx.from_dlpack(made(code))
    assert "; pass " in refused.value.__notes__[-1]


def test_nan_in_a_table_stays_a_number() -> None:
    """Where it is one."""
    x = made("pd.DataFrame({'a': [1., np.nan]}).assign(b=[3., 4.])")
    assert np.isnan(dlx.convert(x, np)[1, 0])
    x = made("pl.DataFrame({'a': [1., np.nan], 'b': [3., 4.]})")
    assert np.isnan(dlx.convert(x, np)[1, 0])


def test_a_bool_column_of_bits_is_copied_to_bytes() -> None:
    """Of polars and pyarrow; one with nulls is refused."""
    pl, pa = requires("polars"), requires("pyarrow")
    for x in (pl.Series([True, False]), pa.chunked_array([[True], [False]])):
        t = dlx.from_dlpack(x)
        assert (t.dtype.name, t.tolist(), t.is_copied) == ("bool", [True, False], True)
    for x in (pl.Series([True, None]), pa.chunked_array([[True], [None]])):
        with pytest.raises(BufferError):
            dlx.from_dlpack(x)


@pytest.mark.parametrize(
    "dtype", [f"{kind}{8 * size}" for kind in ("int", "uint") for size in (1, 2, 4, 8)]
)
def test_a_column_in_pieces_is_copied(dtype: str) -> None:
    """Every number, of its dtype; `copy=False` refuses."""
    pa, pl = requires("pyarrow"), requires("polars")
    info = np.iinfo(dtype) if "int" in dtype else np.finfo(dtype)
    parts = [np.array([info.max, 1], dtype), np.array([info.min], dtype)]
    for x in (
        pa.chunked_array(parts),
        pl.concat([pl.Series(part) for part in parts], rechunk=False),
    ):
        t = dlx.from_dlpack(x)
        assert (t.dtype.name, t.is_copied) == (dtype, True)
        assert t.numpy().tolist() == np.concatenate(parts).tolist()
        with pytest.raises(BufferError):
            dlx.from_dlpack(x, copy=False)


def test_an_extension_type_in_pieces_is_no_number() -> None:
    """As one in one piece is refused: what stores it is not all of its meaning."""
    pa = requires("pyarrow")
    for kind in (pa.opaque(pa.int32(), "a", "b"), pa.bool8()):
        part = pa.array([1, 2], kind.storage_type)
        part = pa.ExtensionArray.from_storage(kind, part)
        for parts in ([part], [part, part]):
            with pytest.raises(BufferError):
                dlx.from_dlpack(pa.chunked_array(parts))


def test_rows_of_one_length_are_taken_without_nulls_inside() -> None:
    """polars' Array: its `__array__` makes NaN of them."""
    pl = requires("polars")
    kind = pl.Array(pl.Float64, 2)
    rows: list[Any] = [[1.0, 2.0], [3.0, 4.0]]
    x = pl.Series(rows, dtype=kind)
    assert dlx.convert(x, np).tolist() == rows
    pieces = pl.concat([x[:1], x[1:]], rechunk=False)
    assert dlx.convert(pieces, np).tolist() == rows
    for rows in ([[1.0, None]], [[1.0, 2.0], None]):
        with pytest.raises(BufferError):
            dlx.convert(pl.Series(rows, dtype=kind), np)


# Protocols are those of the class


@pytest.mark.parametrize("name", ["__array_interface__", "__dlpack__", "dtype", "x"])
def test_a_label_is_no_protocol(name: str) -> None:
    """What `__getattr__` of pandas gives by a name is what the object holds."""
    pd = requires("pandas")
    x = pd.Series([1.0, 2.0], index=[name, "b"])
    assert dlx.convert(x, np).tolist() == [1, 2]
    x = pd.DataFrame({name: [1.0, 2.0], "b": [3.0, 4.0]})
    assert dlx.convert(x, np).tolist() == WANT


@pytest.mark.parametrize("name", ["null_count", "isna", "array"])
def test_a_label_is_no_method(name: str) -> None:
    """By which a column says what it lacks."""
    pd = requires("pandas")
    x = pd.Series([1, 2], index=[name, "b"], dtype="int64[pyarrow]")
    assert dlx.convert(x, np).tolist() == [1, 2]
    x = pd.DataFrame({name: [1, 2], "b": [3, 4]}, dtype="Int64")
    assert dlx.convert(x, np).tolist() == WANT


def test_an_instance_may_have_a_protocol_of_its_own() -> None:
    """As attributes that it has itself."""

    class Column:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise AssertionError

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    x: Any = Column()
    memory = np.arange(3.0)
    x.__array_interface__ = memory.__array_interface__
    assert dlx.convert(x, np).tolist() == [0, 1, 2]


def test_a_proxy_answers_for_what_it_stands_for() -> None:
    """A class without a protocol of its own may give one by `__getattr__`."""

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return getattr(np.arange(3.0), name)

    assert dlx.convert(Proxy(), np).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "code", ["pd.Series(np.arange(1000.0))", "pl.Series(np.arange(1000.0))"]
)
@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer takes time")
def test_a_series_takes_no_more_than_ten_times_its_own_conversion(code: str) -> None:
    """Nobody passes one per batch otherwise."""
    x = made(code)

    def best(function: Any) -> float:
        return min(timeit.repeat(function, number=200, repeat=7))

    assert best(lambda: dlx.convert(x, np)) < 10 * best(x.to_numpy)
