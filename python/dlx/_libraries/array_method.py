"""Whether the array that an object makes of itself is what the object says it is."""

from __future__ import annotations

import re
from math import nan

from .._core import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["refusal"]


def refusal(x: Any, dtype: Any, made: Any) -> str | None:
    """Say how the array of NumPy dtype ``made`` differs from ``x``, of ``dtype``.

    None if it does not: pandas makes NaN, and so floats, of what is missing.
    """
    name = type_name(type(x))
    if not _is_same(dtype, made):
        return (
            f"{name} has the dtype {dtype}, and the array that it makes of itself has "
            f"{made}; pass x.to_numpy(dtype) or numpy.asarray(x, dtype) with the dtype "
            "that is meant"
        )
    is_number = isinstance(getattr(dtype, "na_value", nan), float)
    if (not is_number or hasattr(dtype, "categories")) and _misses(x):
        return (
            f"{name} has missing values, and the array that it makes of itself has "
            "numbers in their places; pass x.to_numpy(dtype, na_value=value)"
        )
    return None


def _is_same(dtype: Any, made: Any) -> bool:
    """Whether a dtype of any library names the numbers of a NumPy dtype."""
    # Of pandas: what stores the numbers, and those that categories stand for.
    stored = [getattr(dtype, name, None) for name in ("numpy_dtype", "subtype")]
    stored.append(getattr(getattr(dtype, "categories", None), "dtype", None))
    if any(_equals(made, each) for each in (dtype, *stored)):
        return True
    # Others are known by their names: "torch.int64", "Array(Int64, shape=(2,))".
    text = str(getattr(dtype, "name", dtype)).lower()
    if names := re.findall(r"[a-z]+\d\w*", text):
        return made.name in names
    import numpy

    try:
        # "float" is of another size in some libraries.
        return numpy.dtype(text.rpartition(".")[2]).kind == str(made.kind)
    except TypeError:
        return False


def _equals(made: Any, dtype: Any) -> bool:
    try:
        return dtype is not None and (made == dtype) is True
    except Exception:
        return False


def _misses(x: Any) -> bool:
    """Whether values are missing, by the method of pandas, or that of xarray."""
    import numpy

    ask = getattr(x, "isna", getattr(x, "isnull", None))
    return ask is not None and bool(numpy.any(ask()))
