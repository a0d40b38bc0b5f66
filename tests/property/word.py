"""What a library says of an object: by `__dlpack__`, else by its documentation."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np
from truth.says import package_of

from .said import READ_ONLY, UNSAID, Said, named_dtype, of_capsule, of_numpy


class Word(NamedTuple):
    """The library's word, without dlx."""

    said: Said | None
    """None: nothing is known, or there are no elements that DLPack could describe."""
    error: Exception | None = None
    """What `__dlpack__` raised."""
    documented: bool = False
    """Whether the library does not export it, and its documentation says this."""
    immutable: bool = False
    """Whether its documentation says that the elements do not change."""
    masked: bool = False
    """Whether some elements do not count, which no export can say."""
    moves: bool = False
    """Whether each export is elsewhere."""
    dtype: Any = None
    """The dtype that the object itself names, if DLPack has it."""
    hold: Any = None
    """Keeps what was exported."""

    @property
    def exports(self) -> bool:
        """Whether the library's own `__dlpack__` exports it."""
        return self.said is not None and not self.documented

    @property
    def protected(self) -> bool:
        """Whether a consumer must not write to the elements."""
        flags = self.said.flags if self.said else None
        return self.immutable or (isinstance(flags, int) and bool(flags & READ_ONLY))


def export(x: Any) -> Any:
    """Return the object's own export, of the newest version that it can give."""
    try:
        return x.__dlpack__(max_version=(1, 3))
    except TypeError:
        return x.__dlpack__()


def word_of(x: Any, immutable: bool = False) -> Word:
    """Ask an object of a library whose arrays are immutable, or not."""
    found = Word(
        None,
        immutable=immutable and not is_mutable(x),
        masked=is_masked(x),
        dtype=named_dtype(x),
    )
    if hasattr(x, "__dlpack__"):
        try:
            capsule = export(x)
        except Exception as error:
            found = found._replace(error=error)
        else:
            said = of_capsule(capsule)
            moves = of_capsule(export(x)).address != said.address
            return found._replace(said=said, moves=moves, hold=capsule)
    array = own_array(x)
    if array is None:
        return found
    said = of_numpy(array)
    if found.immutable or isinstance(x, np.generic):
        said = said._replace(flags=READ_ONLY)
    again = own_array(x)
    moves = again is None or of_numpy(again).address != said.address
    return found._replace(said=said, documented=True, moves=moves, hold=array)


def is_masked(x: Any) -> bool:
    """Whether an object has a mask by which some elements do not count."""
    try:
        mask = x.mask
    except Exception:
        return False
    return isinstance(mask, (np.ndarray, np.bool_)) and bool(np.any(mask))


def is_mutable(x: Any) -> bool:
    """Whether it can be changed, although its library has immutable arrays."""
    kind = type(x).__name__
    return kind.endswith(("Variable", "Ref")) or bool(getattr(x, "is_mutable", False))


def own_array(x: Any) -> Any:
    """Return the elements as an array that the library itself makes; None if it cannot.

    The array has the memory of the object, if that is possible.
    """
    try:
        array = _as_array(x)
    except Exception:
        return None
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return None
    ours = array.dtype.type.__module__ == "ml_dtypes"
    return array if ours or array.dtype.kind in "biufc" else None


def _as_array(x: Any) -> Any:
    package = package_of(x)
    if package == "polars":
        return x.to_numpy(allow_copy=False)
    if package in ("pandas", "xarray"):
        return x.values
    if package == "awkward":
        return sys.modules["awkward"].to_numpy(x, allow_missing=False)
    if package == "pyarrow" and hasattr(x, "to_numpy"):
        return x.to_numpy(zero_copy_only=True)
    if hasattr(x, "__dlpack__") and type(x) is not np.ndarray:
        return None  # It has said that it does not export its elements.
    if type(x) in (memoryview, bytes, bytearray) or isinstance(x, ctypes.Array):
        return np.asarray(memoryview(x))
    return np.asarray(x) if not isinstance(x, np.generic) else np.asarray(x)[...]


def maybe_read_only(said: Said) -> bool:
    """Whether a consumer must take the memory for read-only."""
    return said.flags == UNSAID or bool(int(said.flags or 0) & READ_ONLY)
