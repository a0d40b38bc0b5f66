"""What to pass instead of a column or table of pandas, polars or pyarrow."""

from __future__ import annotations

from .._containers import elements
from .array_method import misses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["advice"]

_PANDAS = {
    "strings": "x.astype('category').{cat}codes, a number for each and -1 for none",
    "categories": "x.{cat}codes, a number for each and -1 for none",
    "numeric categories": "pandas.array(x.astype(object), '{number}').fillna(value)",
    "complex categories": "x.to_numpy('complex128', na_value=value)",
    "timestamps": "x.{whole}astype('int64')",
    "dates": "x.{whole}astype('int64')",
    "durations": "x.{whole}astype('int64')",
    "periods": "x.{whole}astype('int64')",
    "intervals": "x.{array}left and x.{array}right",
    "decimals": "x.to_numpy('float64')",
    "missing": "x.to_numpy(dtype, na_value=value) with a numeric dtype",
    "tuples": "x.to_frame()",
    "several": "x[names] with columns of one dtype, or x.to_numpy(dtype) with a "
    "numeric dtype if all have numbers",
    "": "x.to_numpy(dtype) with a numeric dtype if each is a number",
}
# Of pandas, too, for what pyarrow stores.
_ARROW_DTYPE = {
    "dates": "x.{whole}astype('{int}[pyarrow]')",
    "times of day": "x.{whole}astype('{int}[pyarrow]')",
    "lists": "{series}.list.flatten(), all in one row",
    "structs": "{series}.struct.field(name)",
    "bytes": "numpy.frombuffer(x[i], dtype), one by one",
    "categories": "x.factorize()[0], a number for each and -1 for none",
    "booleans and nulls": "x.to_numpy('bool', na_value=value)",
}
_POLARS = {
    "strings": "x.cast(polars.Categorical).to_physical(), a number for each",
    "categories": "x.to_physical(), a number for each",
    "timestamps": "x.to_physical()",
    "dates": "x.to_physical()",
    "durations": "x.to_physical()",
    "times of day": "x.to_physical()",
    "lists": "x.explode(), all in one row",
    "rows of one length": "x.to_numpy()",
    "rows and nulls": "x.drop_nulls().explode().fill_null(value), all in one row",
    "structs": "x.struct.field(name)",
    "bytes": "numpy.frombuffer(x[i], dtype), one by one",
    "Python objects": "numpy.asarray(x.to_list(), dtype) with a numeric dtype",
    "nulls alone": "x.cast(polars.Float64).fill_null(value)",
    "missing": "x.fill_null(value), or x.drop_nulls()",
    "several": "x.select(names) with columns of one dtype, or x.cast(dtype) if all "
    "have numbers",
    "": "x.cast(dtype) with a numeric dtype of polars",
}
_PYARROW = {
    "strings": "{array}.dictionary_encode().indices, a number for each",
    "categories": "{array}.indices, a number for each",
    "numeric categories": "{array}.dictionary_decode()",
    "timestamps": "x.cast('int64')",
    "durations": "x.cast('int64')",
    "dates": "x.cast('{int}')",
    "times of day": "x.cast('{int}')",
    "lists": "{array}.drop_null().flatten(), what is there in one row",
    "tensors": "{array}",
    "tensors of booleans": "numpy.array({array}.storage.to_pylist()), a row for each",
    "structs": "{array}.flatten()[i]",
    # The children of these do not know of which rows a slice is.
    "maps": "numpy.array([v for row in x.drop_null().to_pylist() for _, v in row])",
    "unions": "numpy.array(x.to_pylist())",
    "an extension type": "{array}.storage",
    "runs": "pyarrow.compute.run_end_decode(x)",
    "calendar intervals": "numpy.array(x.to_pylist())",
    "bytes": "numpy.frombuffer(x[i].as_py(), dtype), one by one",
    "decimals": "x.cast('float64')",
    "nulls alone": "x.cast('float64').fill_null(value)",
    "missing": "x.fill_null(value), or x.drop_null()",
    "table": "x.column(i)",
    "": "x.cast(dtype) with a numeric dtype",
}
_XARRAY = {
    "strings": "pandas.factorize(x.data.ravel())[0].reshape(x.shape), a number for "
    "each and -1 for none",
    "timestamps": "x.data.astype('int64'), the least int64 for NaT",
    "dates": "x.data.astype('int64'), the least int64 for NaT",
    "durations": "x.data.astype('int64'), the least int64 for NaT",
    "categories": "x.data.codes, a number for each",
    "missing": "x.data.to_numpy(dtype, na_value=value) with a numeric dtype",
    "Python objects": "x.data.astype(dtype) with a numeric dtype if each is a number",
    "": "x.data",
}
_AWKWARD = {
    "strings": "numpy.unique(x.to_numpy(), return_inverse=True)[1], a number for each",
    "timestamps": "x.to_numpy().astype('int64'), the least int64 for NaT",
    "durations": "x.to_numpy().astype('int64'), the least int64 for NaT",
    "": "x.to_numpy() if rows are of one length, awkward.flatten(x) if not, x['name'] "
    "of fields, or awkward.fill_none(x, value)",
}
_CODES = "numpy.unique(x[...], return_inverse=True)[1], a number for each"
_H5PY = {
    "strings": _CODES,
    "bytes": _CODES,
    "Python objects": f"{_CODES} if they are strings, or x[i], one by one",
    "fields": "x[name]",
    "": "x[...]",
}
_KINDS = (
    ("pandas", "DataFrame", "table", _PANDAS),
    ("pandas", "Series", "column", _PANDAS),
    ("pandas", "Index", "index", _PANDAS),
    ("pandas.api.extensions", "ExtensionArray", "column", _PANDAS),
    ("polars", "DataFrame", "table", _POLARS),
    ("polars", "Series", "column", _POLARS),
    ("pyarrow", "Table", "table", _PYARROW),
    ("pyarrow", "RecordBatch", "table", _PYARROW),
    ("pyarrow", "ChunkedArray", "column", _PYARROW),
    ("pyarrow", "Array", "column", _PYARROW),
    ("xarray", "DataArray", "wrapped array", _XARRAY),
    ("xarray", "Variable", "wrapped array", _XARRAY),
    ("awkward", "Array", "array of awkward", _AWKWARD),
    ("h5py", "Dataset", "dataset in a file", _H5PY),
)


# By the first letter of other names; these have a place for what is missing.
_NUMBERS = {"b": "boolean", "i": "Int64", "u": "UInt64"}
_NUMBERS |= dict.fromkeys("fdh", "Float64")


def advice(x: Any) -> str | None:
    """Say what ``x`` has and what to pass instead; None for another object."""
    for module, name, what, known in _KINDS:
        if elements.is_of(x, module, name):
            article = "an" if what[0] in "ai" else "a"
            return f"it is {article} {what}{_of(x, name, known)}"
    return None


def _of(x: Any, name: str, known: dict[str, str]) -> str:
    words, number = elements.of(x) or "", ""
    key = words.partition(" in ")[0]
    if known is _PYARROW and name in ("Table", "RecordBatch"):
        key, words = "table", ""
    elif key == elements.NUMERIC and known is _PANDAS and name != "DataFrame":
        # Without nulls these are numbers, which are taken.
        number = _NUMBERS.get(str(elements.categories(x.dtype))[0].lower(), "")
        key, words = key if number else "complex categories", f"{key} and nulls"
    elif hasattr(x, "levels"):  # MultiIndex
        key = words = "tuples"
    elif words == elements.SEVERAL:
        key = "several"
    elif key == elements.ROWS and known is _POLARS:
        if x.null_count() or x.explode().null_count():
            key, words = "rows and nulls", f"{words}, with nulls"
    elif key == elements.NUMBERS:
        dtype = str(getattr(x, "type", getattr(x, "dtype", ""))).lower()
        what = "booleans" if dtype.startswith("bool") else elements.NUMBERS
        key, words = "missing" if misses(x) else "", f"{what} and nulls"
        if key and dtype == "bool[pyarrow]":
            key = "booleans and nulls"
        if not key:
            words = ""
    elif words == "tensors" and str(x.type.value_type) == "bool":
        key = words = "tensors of booleans"
    found = known.get(key, known[""])
    stored = str(getattr(x, "type", getattr(x, "dtype", "")))
    if known is _PANDAS and "[pyarrow]" in stored:
        found = _ARROW_DTYPE.get(key, found)
    if name == "DataFrame" and key not in ("several", "missing", ""):
        found = "its columns, x[name], one by one, for what to pass of each"
    if known is _PANDAS and name == "DataFrame" and not x.columns.is_unique:
        found = found.replace("x[name]", "x.iloc[:, i]")
        found = found.replace("x[names]", "x.iloc[:, places]")
    is_series = name == "Series"
    text = found.format(
        cat="cat." if is_series else "",
        number=number,
        series="x" if is_series else "pandas.Series(x)",
        whole="dropna()." if "{whole}" in found and misses(x) else "",
        array=_array(x, name) if known is _PYARROW else "array." if is_series else "",
        int="int32" if "32" in stored else "int64",
    )
    return f" of {words}; pass {text}" if words else f"; pass {text}"


def _array(x: Any, name: str) -> str:
    return "x.combine_chunks()" if name == "ChunkedArray" else "x"
