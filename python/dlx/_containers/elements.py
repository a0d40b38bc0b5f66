"""What the elements of an array, a column or a table are, where they are no numbers."""

from __future__ import annotations

import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "NUMBERS",
    "ROWS",
    "are_numbers",
    "is_of",
    "must_be_dense",
    "of",
    "of_dtype",
    "of_table",
]

NUMBERS = "numbers"
# What stands for numbers, or holds them.
NUMERIC = "numeric categories"
ROWS = "rows of one length"
_UNITS = {"ms": "ms", "us": "µs", "ns": "ns", "s": "s", "μs": "µs", "µs": "µs"}

SEVERAL = "columns of several dtypes"

# By what the libraries call their dtypes, in lower case; the first that fits counts.
_WORDS = (
    (
        r"(u?int(?!128)\d*|b?float\w*|complex\w*|bool(ean|8)?|half|double|range)$",
        NUMBERS,
    ),
    (r"(large_)?(utf8|str(?!uct))|<u\d|[<=>]?str(?!uct)|dtype\(.<u", "strings"),
    (r"categor|enum|dictionary", "categories"),
    (r"period", "periods"),
    (r"interval", "intervals"),
    (r"date(32|64)?(\[(d|day|ms)\])?$|datetime64\[d\]", "dates"),
    (r"datetime|timestamp", "timestamps"),
    (r"duration|timedelta", "durations"),
    (r"time(32|64)?(\[|$)", "times of day"),
    (r"month_", "calendar intervals"),
    (r"array\((?P<of>[^,]+)", ROWS),
    (r"(large_)?list|fixed_size_list", "lists"),
    (r"map<", "maps"),
    (r"(dense|sparse)_union", "unions"),
    (r"run_end_encoded", "runs"),
    (r"extension<arrow\.fixed_shape_tensor", "tensors"),
    (r"extension<", "an extension type"),
    (r"struct", "structs"),
    (r"(large_)?binary|fixed_size_binary|bytes", "bytes"),
    (r"decimal", "decimals"),
    (r"obj", "Python objects"),
    (r"null|na$", "nulls alone"),
    (r"void|record", "fields"),
    (r"sparse\[(?P<of>[^,\]]+)", "sparse"),
    (r"u?int128", "integers of 128 bits"),
)


def of_dtype(dtype: Any) -> str | None:
    """Say in plain words what elements of a dtype of any library are.

    `NUMBERS` for those that a tensor may have; None for a dtype that dlx cannot read.
    """
    name = getattr(dtype, "name", None)
    text = str(name if isinstance(name, str) else dtype).lower()
    text = text.removesuffix("[pyarrow]")
    for pattern, words in _WORDS:
        if found := re.match(pattern, text):
            if words == "sparse":
                return of_dtype(found["of"])
            if words == ROWS and not are_numbers(of_dtype(found["of"])):
                return "lists"
            if words == "categories" and of_dtype(categories(dtype)) == NUMBERS:
                return NUMERIC
            unit = re.search(r"\[([mnuµμ]?s)[,\]]|unit='([mnuµμ]?s)'", text)
            if unit and words in ("timestamps", "durations", "times of day"):
                return f"{words} in {_UNITS[unit[1] or unit[2]]}"
            return words
    return None


def are_numbers(words: str | None) -> bool:
    """Whether elements, in the words of this module, are numbers in some form."""
    return words in (NUMBERS, NUMERIC, ROWS, "tensors")


def categories(dtype: Any) -> Any:
    """Return the dtype of the categories of a dtype of pandas or pyarrow."""
    values = getattr(getattr(dtype, "categories", None), "dtype", None)
    stored = getattr(dtype, "pyarrow_dtype", dtype)
    return getattr(stored, "value_type", None) if values is None else values


def of_table(x: Any) -> list[Any] | None:
    """Return the dtypes of the columns of a table; None for what is no table."""
    if hasattr(type(x), "dtype"):
        return None
    if hasattr(type(x), "dtypes"):
        return list(x.dtypes)
    return list(x.schema.types) if hasattr(type(x), "schema") else None


def of(x: Any) -> str | None:
    """Say in plain words what elements an array, a column or a table has.

    None if dlx cannot tell.
    """
    try:
        if (columns := of_table(x)) is not None:
            # pyarrow's tables have columns alone, of whatever dtypes.
            is_matrix = hasattr(type(x), "dtypes")
            if not is_matrix or any(column != columns[0] for column in columns):
                return SEVERAL
            return of_dtype(columns[0]) if columns else NUMBERS
        dtype = getattr(x, "dtype", None)
        words = of_dtype(getattr(x, "type", None) if dtype is None else dtype)
        if words is None:
            # Numbers may be what stores something else.
            made = of_dtype(x.__array__().dtype)
            return None if made == NUMBERS else made
        return words
    except Exception:
        return None


def is_of(x: Any, module: str, name: str) -> bool:
    """Whether ``x`` is an instance of a class that a module has, if that is loaded."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(x, kind)


def must_be_dense(x: Any) -> bool:
    """Whether an array has all elements, in rows of one length, for all dlx knows.

    In awkward rows may be of any length, and arrays of sparse lack elements.
    """
    if is_of(x, "xarray", "DataArray") or is_of(x, "xarray", "Variable"):
        return must_be_dense(x.data)
    return not (is_of(x, "awkward", "Array") or is_of(x, "sparse", "SparseArray"))


# By Arrow's format strings; the first that begins so counts.
_FORMATS = {
    "b": "booleans of one bit each",
    "n": "nulls alone",
    **dict.fromkeys(("u", "U", "vu"), "strings"),
    **dict.fromkeys(("z", "Z", "vz", "w:"), "bytes"),
    "d:": "decimals",
    "td": "dates",
    "tt": "times of day",
    "ts": "timestamps",
    "tD": "durations",
    "ti": "calendar intervals",
    **dict.fromkeys(("_pli128", "_plu128"), "integers of 128 bits"),
    "+s": "structs, as a table has: pass one column",
    "+": "lists",
}
_LETTERS = {"s": "s", "m": "ms", "u": "µs", "n": "ns"}


def of_format(text: str, is_dictionary: bool) -> str:
    """Say in plain words what elements of a format of Arrow are."""
    if is_dictionary:
        return "categories (indices of a dictionary)"
    for start, words in _FORMATS.items():
        if text == start or (len(start) == 2 and text.startswith(start)):
            unit = _LETTERS.get(text[2:3]) if start in ("tt", "ts", "tD") else None
            return f"{words} in {unit}" if unit else words
    if text.startswith("+"):
        return _FORMATS["+"]
    return f"elements of the format {text!r}"
