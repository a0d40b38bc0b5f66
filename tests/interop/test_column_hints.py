"""What the errors for columns and tables say to pass, and that it is taken."""

from __future__ import annotations

import re
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

# What makes x, what the error calls its elements, and what the advice gives.
CASES: list[tuple[str, str, Any]] = [
    ("pd.Series(['red', 'blue', 'red'])", "strings", [1, 0, 1]),
    ("pd.Index(['red', 'blue'])", "strings", [1, 0]),
    ("pd.array(['red', 'blue'], dtype='string')", "strings", [1, 0]),
    ("pd.Series(['a', None, 'b'], dtype='category')", "categories", [0, -1, 1]),
    (
        "pd.Series([10, None, 20], dtype=pd.CategoricalDtype([10, 20]))",
        "numeric categories and nulls",
        [10, 7, 20],
    ),
    (
        "pd.Series([2**60 + 1, None], dtype='category')",
        "numeric categories and nulls",
        [2**60 + 1, 7],
    ),
    (
        "pd.CategoricalIndex([10, None, 20])",
        "numeric categories and nulls",
        [10, 7, 20],
    ),
    (
        "pd.Series([1.5, None], dtype='category').array",
        "numeric categories and nulls",
        [1, 7],
    ),
    ("pd.Series([True, None], dtype='category')", "categories and nulls", [1, 1]),
    ("pd.Categorical(['b', 'a'])", "categories", [1, 0]),
    ("pd.Series(np.array([5, 'NaT'], 'M8[s]'))", "timestamps in s", [5]),
    ("arrow(pa.array([2, None], pa.int32()).cast(pa.date32()))", "dates", [2]),
    ("arrow(pa.array([2]).cast(pa.time64('us')))", "times of day in µs", [2]),
    ("arrow(pa.array([[1, 2]]))", "lists", [1, 2]),
    ("arrow(pa.array([{'name': 1}]))", "structs", [1]),
    ("arrow(pa.array([b'ab']))", "bytes", [97, 98]),
    ("pd.TimedeltaIndex(np.array(['NaT', 5], 'm8[s]'))", "durations in s", [5]),
    ("pd.PeriodIndex(['1970-01-02', None], freq='D')", "periods", [1]),
    ("pd.CategoricalIndex(['b', 'a'])", "categories", [1, 0]),
    ("pd.Series(np.array([5], 'M8[s]'))", "timestamps in s", [5]),
    (
        "pd.Series(np.array([5], 'M8[us]')).dt.tz_localize('UTC')",
        "timestamps in µs",
        [5],
    ),
    ("pd.DatetimeIndex(np.array([5], 'M8[ns]'))", "timestamps in ns", [5]),
    ("pd.Series(np.array([5], 'm8[ms]'))", "durations in ms", [5]),
    (
        "pd.Series(pd.period_range('1970-01-02', periods=2, freq='D'))",
        "periods",
        [1, 2],
    ),
    ("pd.Series(pd.interval_range(0, 2))", "intervals", [0, 1]),
    ("pd.interval_range(0, 2)", "intervals", [0, 1]),
    ("pd.Series([1, 2], dtype=object)", "Python objects", [1, 2]),
    ("pd.Series([1, None], dtype='Int64')", "numbers and nulls", [1, 7]),
    ("pd.array([True, None], dtype='boolean')", "booleans and nulls", [1, 7]),
    ("pl.Series([True, None])", "booleans and nulls", [1, 1]),
    ("pd.Series([1.5, None], dtype='double[pyarrow]')", "numbers and nulls", [1, 7]),
    ("pd.Series([1, 2], dtype=pd.ArrowDtype(pa.decimal128(3)))", "decimals", [1, 2]),
    ("pd.DataFrame({'a': [1, 2], 'b': [0.5, 3]})", "several dtypes", [[1], [2]]),
    (
        "pd.DataFrame([[1, 0.5], [2, 3]], columns=['a', 'a'])",
        "several dtypes",
        [[1], [2]],
    ),
    ("pd.Series([True, None], dtype='bool[pyarrow]')", "booleans and nulls", [1, 1]),
    ("pd.MultiIndex.from_tuples([(1, 2), (3, 4)])", "tuples", [[1, 2], [3, 4]]),
    ("arrow(pa.array(['b', None]).dictionary_encode())", "categories", [0, -1]),
    ("arrow(pa.array([5, None]).dictionary_encode())", "numeric categories", [5, 7]),
    ("pl.Series(['red', 'blue', 'red'])", "strings", [0, 1, 0]),
    (
        "pl.Series([[1, None], None, [3, 4]], dtype=pl.Array(pl.Int64, 2))",
        "rows of one length, with nulls",
        [1, 7, 3, 4],
    ),
    ("pl.Series(['a', 'b'], dtype=pl.Enum(['b', 'a']))", "categories", [1, 0]),
    ("pl.Series([3]).cast(pl.Date)", "dates", [3]),
    ("pl.Series([3]).cast(pl.Datetime('us', 'UTC'))", "timestamps in µs", [3]),
    ("pl.Series([3]).cast(pl.Duration('ms'))", "durations in ms", [3]),
    ("pl.Series([3]).cast(pl.Time)", "times of day", [3]),
    ("pl.Series([1, None])", "numbers and nulls", [1, 7]),
    ("pl.Series([1.0, None])", "numbers and nulls", [1, 7]),
    ("pl.Series([None, None])", "nulls alone", [7, 7]),
    ("pl.Series([[1], [2, 3]])", "lists", [1, 2, 3]),
    ("pl.Series([{'name': 1}])", "structs", [1]),
    ("pl.Series(['1.5']).cast(pl.Decimal(5, 2))", "decimals", [1]),
    ("pl.Series([5], dtype=pl.Int128)", "integers of 128 bits", [5]),
    ("pl.Series([b'\\x01\\x02'])", "bytes", [1, 2]),
    ("pl.DataFrame({'a': [1, 2], 'b': [0.5, 3]})", "several dtypes", [[1], [2]]),
    (
        "pl.DataFrame({'name': pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2))})",
        "Array(Int64, shape=(2,))",
        [[1, 2]],
    ),
    (
        "pl.DataFrame({'a': [1, None], 'b': [2, 3]})",
        "numbers and nulls",
        [[1, 2], [7, 3]],
    ),
    ("pa.array(['red', 'blue', 'red'])", "strings", [0, 1, 0]),
    ("pa.chunked_array([['red'], ['blue']])", "strings", [0, 1]),
    ("pa.array(['a', 'b']).dictionary_encode()", "categories", [0, 1]),
    ("pa.chunked_array([pa.array(['a']).dictionary_encode()])", "categories", [0]),
    ("pa.array([5, 6]).dictionary_encode()", "numeric categories", [5, 6]),
    (
        "pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))",
        "an extension type",
        [1, 0],
    ),
    ("pa.array([3], pa.timestamp('us'))", "timestamps in µs", [3]),
    ("pa.chunked_array([pa.array([3], pa.duration('s'))])", "durations in s", [3]),
    ("pa.array([3], pa.date32())", "dates", [3]),
    ("pa.array([86400000], pa.date64())", "dates", [86400000]),
    ("pa.array([3], pa.time32('s'))", "times of day in s", [3]),
    ("pa.array([3], pa.time64('ns'))", "times of day in ns", [3]),
    ("pa.array([1, None])", "numbers and nulls", [1, 7]),
    ("pa.chunked_array([[1], [None]])", "numbers and nulls", [1, 7]),
    ("pa.array([True, None])", "booleans and nulls", [1, 1]),
    ("pa.nulls(2)", "nulls alone", [7, 7]),
    ("pa.array([[1], [2, 3]])", "lists", [1, 2, 3]),
    (
        "pa.array([[1, 2], None, [5, 6]], pa.list_(pa.int64(), 2))",
        "lists",
        [1, 2, 5, 6],
    ),
    ("pa.array([{'name': 1}])", "structs", [1]),
    ("pa.array([[('a', 1)]], pa.map_(pa.string(), pa.int64()))", "maps", [1]),
    (
        "pa.array([[('a', 1)], None, [('b', 2)]], "
        "pa.map_(pa.string(), pa.int64()))[1:]",
        "maps",
        [2],
    ),
    (
        "pa.UnionArray.from_dense("
        "pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), "
        "[pa.array([1, 2])])[1:]",
        "unions",
        [2],
    ),
    ("pd.array([[1, 2]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))", "lists", [1, 2]),
    (
        "pd.Index([{'name': 1}], "
        "dtype=pd.ArrowDtype(pa.struct([('name', pa.int64())])))",
        "structs",
        [1],
    ),
    ("pa.array([pa.MonthDayNano([1, 2, 3])])", "calendar intervals", [[1, 2, 3]]),
    ("pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2])", "runs", [1, 1, 2]),
    (
        "pa.UnionArray.from_dense("
        "pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])",
        "unions",
        [1],
    ),
    (
        "pa.StructArray.from_arrays([pa.array([1])], ['a'], mask=pa.array([False]))",
        "structs",
        [1],
    ),
    ("pa.array([b'\\x01\\x02'])", "bytes", [1, 2]),
    ("pa.array([1, 2]).cast(pa.decimal128(21))", "decimals", [1, 2]),
    ("pa.table({'name': [1, 2]})", "a table", [1, 2]),
    ("pa.record_batch({'name': [1, 2]})", "a table", [1, 2]),
    ("pa.table([[1, 2], ['a', 'b']], ['name', 'name'])", "a table", [1, 2]),
    (
        "pa.chunked_array([pa.ExtensionArray.from_storage("
        "pa.fixed_shape_tensor(pa.bool_(), (2,)), "
        "pa.array([[True, False]], pa.list_(pa.bool_(), 2)))])",
        "tensors of booleans",
        [[1, 0]],
    ),
    (
        "pl.Series([[True, False], [True, True]], dtype=pl.Array(pl.Boolean, 2))",
        "rows of one length",
        [[1, 0], [1, 1]],
    ),
    (
        "pa.chunked_array([pa.ExtensionArray.from_storage("
        "pa.fixed_shape_tensor(pa.int8(), (2,)), "
        "pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)))])",
        "tensors",
        [[1, 2], [3, 4]],
    ),
    ("xr.DataArray(['b', 'a'])", "strings", [0, 1]),
    ("xr.DataArray(pd.array(['b', pd.NA], dtype='string'))", "strings", [0, -1]),
    ("xr.DataArray([['b', 'a']])", "strings", [[0, 1]]),
    ("xr.DataArray(np.array([5], 'M8[ns]'))", "timestamps in ns", [5]),
    ("xr.DataArray(pd.array([1, None]))", "numbers and nulls", [1, 7]),
    ("xr.DataArray(pd.Categorical(['b', 'a']))", "categories", [1, 0]),
    ("xr.DataArray(np.array([1, 2], object))", "Python objects", [1, 2]),
]
LIBRARIES = {"pd": "pandas", "pl": "polars", "pa": "pyarrow", "xr": "xarray"}


def stored_by_arrow(array: Any) -> Any:
    """Return a Series of pandas that has an array of pyarrow."""
    pandas = requires("pandas")
    return pandas.Series(array, dtype=pandas.ArrowDtype(array.type))


def names(code: str) -> dict[str, Any]:
    """Return the libraries that the code names, and what the advice leaves open."""
    found: dict[str, Any] = {"np": np, "numpy": np, "name": "name", "names": ["a"]}
    found["places"] = [0]
    if "arrow(" in code:
        found["arrow"], code = stored_by_arrow, f"{code} pd."
    for short in re.findall(r"\b(pd|pl|pa|xr)\.", code):
        found[short] = found[LIBRARIES[short]] = requires(LIBRARIES[short])
    if "xr" in found:
        found["pandas"] = requires("pandas")
    requires("pyarrow.compute")  # which advice names
    found["dtype"] = found["pl"].Int64 if "pl" in found else "int64"
    return found | {"value": 7, "i": 0}


@pytest.mark.parametrize(("code", "words", "expected"), CASES)
def test_the_error_names_the_elements_and_its_advice_is_taken(
    code: str, words: str, expected: Any
) -> None:
    """R61: the first thing that it says to pass gives what it says."""
    known = names(code)
    x = known["x"] = eval(code, known)
    with pytest.raises(BufferError) as refused:
        dlx.convert(x, np)
    texts = [str(refused.value), *getattr(refused.value, "__notes__", ())]
    assert words in texts[-1]
    assert "; pass " not in texts[0] or len(texts) == 1  # nothing else, of another x
    assert "format" not in texts[0].replace("the format '_pl", "")
    advice = re.split(r", |\s(?:with|if|and)\s", texts[-1].split("; pass ")[1])
    if "dtype" in texts[-1] and "pd" in known and "float" in str(x):
        known["dtype"] = "float64"
    text = next(
        ", ".join(advice[:n])
        for n in range(1, len(advice) + 1)
        if all(
            ", ".join(advice[:n]).count(a) == ", ".join(advice[:n]).count(b)
            for a, b in ("()", "[]")
        )
    )
    if words == "bytes":
        known["dtype"] = "uint8"
    if "boolean" in code or "True, None" in code:
        known["value"] = True
        expected = [1, 1]
    made = eval(text, known)
    found = dlx.from_dlpack(made)
    assert np.asarray(found).astype("int64").tolist() == expected


@pytest.mark.parametrize(
    "code", ["np.array(['NaT'], 'M8[s]')", "xr.DataArray(np.array(['NaT'], 'M8[ns]'))"]
)
def test_the_advice_for_dates_says_what_becomes_of_nat(code: str) -> None:
    """R61: it is a number that a model would take."""
    with pytest.raises(BufferError) as refused:
        dlx.from_dlpack(eval(code, names(code)))
    texts = [str(refused.value), *getattr(refused.value, "__notes__", ())]
    assert "the least int64 for NaT" in texts[-1]
    assert sum("; pass " in text for text in texts) == 1
    assert np.array(["NaT"], "M8[s]").view("int64")[0] == np.iinfo("int64").min


def test_a_table_of_categories_is_refused() -> None:
    """R61: by the same exception as one of strings."""
    pandas = requires("pandas")
    x = pandas.DataFrame({"a": pandas.Categorical(["b", "a"])})
    with pytest.raises(BufferError, match="has categories; expected numbers"):
        dlx.from_dlpack(x)


def test_elements_without_fields_are_viewed() -> None:
    """R61: a dtype of bytes alone has no name to pass."""
    requires("torch")
    x = np.array([5, 6], "i4").view("V4")
    with pytest.raises(BufferError, match=r"or x\.view\(dtype\)"):
        dlx.convert(x, "torch")
    assert dlx.convert(x.view("i4"), "torch").tolist() == [5, 6]
