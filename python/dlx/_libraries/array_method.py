"""Whether the array that an object makes of itself is what the object says it is."""

from __future__ import annotations

import re
import sys
from functools import partial
from math import nan

from .._containers import elements
from .._core import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["decides", "is_whole", "matrix", "misses", "refusal"]


def refusal(x: Any, dtype: Any, made: Any) -> str | None:
    """Say how the array of NumPy dtype ``made`` differs from ``x``, of ``dtype``.

    None if it does not: pandas makes NaN, and so floats, of what is missing. A table
    has the dtype of its columns.
    """
    if _is_same(dtype, made):
        return _missing(x) if _has_nulls(dtype) and misses(x) else None
    name, words = type_name(type(x)), elements.of_dtype(dtype)
    is_other = words is not None and not elements.are_numbers(words)
    if is_other and made.kind not in "biufc":
        return f"{name} has {words}; expected numbers"
    if made.kind in "Of" and misses(x):
        return _missing(x)
    said = f"the dtype {dtype}, and the array that it makes of itself has {made}"
    if made.kind == "O" and not hasattr(type(x), "dtype"):  # a table of rows
        return f"{name} has {said}; pass x[name], one column"
    return (
        f"{name} has {said}; pass x.to_numpy(dtype) or numpy.asarray(x, dtype) "
        "with the dtype that is meant"
    )


def decides(x: Any) -> bool:
    """Whether the dtypes of ``x``, which `refusal` compares, tell what its array is.

    So do those of pandas, of tables, and NumPy's.
    """
    if not hasattr(type(x), "__array__"):
        return False
    if hasattr(type(x), "dtypes"):
        return True
    kind = getattr(sys.modules.get("numpy"), "dtype", None)
    return isinstance(kind, type) and isinstance(getattr(x, "dtype", None), kind)


def is_whole(x: Any) -> bool:
    """Whether a column that refuses a protocol says it has numbers and no nulls."""
    if not hasattr(type(x), "__array__"):
        return False
    while _nulls(x) == 0:
        # What is missing inside of rows of polars' Array, all of one length.
        if not hasattr(getattr(x, "dtype", None), "shape"):
            return elements.of(x) == elements.NUMBERS
        x = x.explode()
    return False


def _nulls(x: Any) -> int | None:
    """Return how many elements are missing, by polars and pyarrow."""
    found = getattr(x, "null_count", None)
    found = found() if callable(found) else found
    return found if type(found) is int else None


def matrix(x: Any) -> tuple[Callable[[], Any], Any]:
    """Return what makes an array of a table, and the dtype of all its columns.

    Of an extension dtype, `pandas.DataFrame.__array__` makes objects, and it takes
    more time than ``to_numpy``. Without columns the dtype is None.
    """
    import numpy

    dtype = None
    if columns := elements.of_table(x):
        if (why := _several(x, columns)) is not None:
            raise BufferError(why)
        dtype = columns[0]
        words = elements.of_dtype(dtype)
        if words is not None and not elements.are_numbers(words):
            raise BufferError(f"{type_name(type(x))} has {words}; expected numbers")
        if known := [each for each in _stored(dtype) if each is not None]:
            if misses(x):
                raise BufferError(_missing(x))
            dtype = known[0]
        if isinstance(dtype, numpy.dtype) and hasattr(type(x), "to_numpy"):
            return partial(x.to_numpy, dtype), dtype
    made: Callable[[], Any] = x.__array__
    return made, dtype


def _several(x: Any, columns: list[Any]) -> str | None:
    """Say which dtypes the columns of a table have, if they have several."""
    dtype = columns[0]
    for other in columns:
        if not _equals(dtype, other):
            name = type_name(type(x))
            if str(dtype) == str(other):  # of other categories
                return f"{name} has columns of several dtypes, all called {dtype}"
            return f"{name} has columns of several dtypes, as {dtype} and {other}"
    return None


def _stored(dtype: Any) -> list[Any]:
    """Return what a dtype of pandas stores: numbers, and what categories stand for."""
    stored = [getattr(dtype, name, None) for name in ("numpy_dtype", "subtype")]
    values = getattr(getattr(dtype, "categories", None), "dtype", None)
    return stored if values is None else [*stored, *_stored(values), values]


def _missing(x: Any) -> str:
    return (
        f"{type_name(type(x))} has missing values, which DLPack cannot represent; "
        "x.__array__() puts other values in their places"
    )


def _has_nulls(dtype: Any) -> bool:
    """Whether elements of a dtype may be missing in a way that is no number."""
    if hasattr(dtype, "categories"):
        return True
    if type(dtype).__module__.partition(".")[0] == "polars":
        return True
    return not isinstance(getattr(dtype, "na_value", nan), float)


def _is_same(dtype: Any, made: Any) -> bool:
    """Whether a dtype of any library names the numbers of a NumPy dtype."""
    # NumPy would write the name of a foreign dtype to say that it knows none such.
    if _equals(dtype, made) or any(_equals(each, made) for each in _stored(dtype)):
        return True
    # Others are known by their names: "torch.int64", "Array(Int64, shape=(2,))".
    text = str(getattr(dtype, "name", dtype)).lower()
    if names := re.findall(r"[a-z]+\d\w*", text):
        return made.name in names
    import numpy

    text = {"boolean": "bool"}.get(text, text)  # of polars
    try:
        # "float" is of another size in some libraries.
        return numpy.dtype(text.rpartition(".")[2]).kind == str(made.kind)
    except TypeError:
        return False


def _equals(dtype: Any, other: Any) -> bool:
    try:
        return dtype is not None and (dtype == other) is True
    except Exception:
        return False


def misses(x: Any) -> bool:
    """Whether values are missing, by what pandas, xarray, polars or pyarrow says."""
    import numpy

    names = ("null_count", "isna", "isnull")
    # An object may have elements of these names.
    known = (name for owner in (type(x), x) for name in names if hasattr(owner, name))
    if (name := next(known, None)) is None:
        return False
    # The array of a column of pandas answers by no other column.
    by_array = name == "isna" and hasattr(type(x), "array")
    found = getattr(x.array if by_array else x, name)
    found = found() if callable(found) else found
    return bool(found if type(found) is int else numpy.any(numpy.asarray(found)))
