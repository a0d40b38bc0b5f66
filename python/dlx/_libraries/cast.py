"""`convert(dtype=)`: the cast of the library that the result belongs to, or of `x`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from .. import _core
from .._core import CopyRefused, DType, from_dlpack, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COMPLEX = 5  # kDLComplex


def _dtype(x: Any) -> DType:
    """Return the dtype of an array, also where dlx cannot read its library's name."""
    try:
        return DType(x.dtype)
    # tvm-ffi raises ValueError for those that it has no name for.
    except (AttributeError, TypeError, ValueError):
        if not hasattr(type(x), "__dlpack__") and hasattr(x.dtype, "fmt"):
            return DType(x.dtype.fmt)  # tinygrad, which has no DLPack, has codes of C
        return from_dlpack(x).dtype


def _by_library(made: Any, dtype: DType) -> Any:
    """Call the library's own cast, which makes an array."""
    name = dtype.name
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow")
    if torch is not None and isinstance(made, torch.Tensor):
        return made.to(getattr(torch, name))
    if tensorflow is not None and isinstance(made, tensorflow.Tensor):
        return tensorflow.cast(made, getattr(tensorflow, name))
    namespace = getattr(made, "__array_namespace__", lambda: None)()
    # Extension dtypes, such as those of ml_dtypes, are known by their names alone.
    own = getattr(namespace, name, getattr(namespace, f"{name}_", name))
    if callable(astype := getattr(namespace, "astype", None)):
        return astype(made, own)
    return made.astype(own)


def _is_complex(x: Any) -> bool:
    """Whether elements are complex, also of dtypes of NumPy that DLPack lacks."""
    try:
        return _dtype(x).code == _COMPLEX
    except BufferError:
        return getattr(x.dtype, "kind", "") == "c"


def _cast(made: Any, dtype: DType, copy: bool | None) -> Any:
    """Return ``made`` with elements of ``dtype``: itself, or what its library casts.

    Raises ``BufferError`` if the library has no such dtype, or casts to another one,
    and if a cast from complex numbers would drop their imaginary parts; `CopyRefused`
    if ``copy`` is False.
    """
    before = _dtype(made)
    if before == dtype:
        return made
    if copy is False:
        raise CopyRefused(
            f"copy=False, but the tensor is of {before} and not of {dtype}"
        )
    if dtype.code != _COMPLEX and _is_complex(made):
        raise BufferError(
            f"a cast from {before} to {dtype} would drop the imaginary parts; "
            "pass the real part alone, or dtype= a complex type"
        )
    try:
        result = _by_library(made, dtype)
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise BufferError(
            f"{type_name(type(made))} cannot be cast to {dtype}"
        ) from error
    if (after := _dtype(result)) != dtype:
        hint = ""
        if isinstance(made, getattr(sys.modules.get("jax"), "Array", ())):
            hint = ", as it does unless jax_enable_x64 is set"
        raise BufferError(
            f"{type_name(type(made))} was cast to {after}, not to {dtype}{hint}"
        )
    return result


def _is_known(dtype: Any) -> bool:
    """Whether DLPack has a dtype of NumPy."""
    try:
        DType(dtype)
    except (BufferError, TypeError, ValueError):
        return False
    return True


def _of_map(dtype: Any) -> Any:
    """Return what a dtype is known by in a map: a `DType`, or one of NumPy alone."""
    try:
        return DType(dtype)
    except (BufferError, TypeError, ValueError):
        with suppress(AttributeError, ImportError, TypeError):
            import numpy

            found = numpy.dtype(dtype).newbyteorder("=")
            if found in (numpy.longdouble, numpy.clongdouble):
                return found
        raise


def _array_of(x: Any) -> Any:
    """Return the plain array of ``x``, which dlx refuses for what NumPy alone knows.

    That is another byte order, a number of more bits, or a packed struct that it is a
    field of. None if the reason may be another one: a cast would read strings as
    numbers, count dates, or lose a mask, nulls or a gradient.
    """
    if hasattr(type(x), "__dlx_export__"):
        return _array_of(x.__dlx_export__())
    with suppress(Exception):
        import numpy

        described = getattr(x, "__array_interface__", None) or {}
        # A subclass may have a mask, and be refused for it.
        array = numpy.asanyarray(x)
        is_plain = type(array) in (numpy.ndarray, numpy.memmap)
        if is_plain and array.dtype.kind in "biufc" and described.get("mask") is None:
            is_packed = any(step % array.itemsize for step in array.strides)
            if is_packed or not _is_known(array.dtype):
                return array
    return None


def _castable(x: Any, detach: bool) -> Any:
    """Return ``x``, or its array, if nothing but its dtype can be why it was refused.

    So it is if dlx imports it.
    """
    try:
        _core.convert(x, _core.Tensor, detach=detach)
    except BufferError:
        return _array_of(x)
    except RuntimeError:  # by which JAX refuses those of less than a byte
        own = getattr(sys.modules.get("jax"), "Array", ())
        return x if isinstance(x, own) and _dtype(x).bits < 8 else None
    return x


def _at_source(x: Any, dtype: DType, detach: bool) -> Any:
    """Return what the library of ``x`` makes of it, else NumPy; None if neither can."""
    takes: list[Callable[[], Any]] = [
        lambda: x,
        lambda: _core.convert(x, "numpy", detach=detach),
    ]
    for take in takes:
        with suppress(Exception):
            taken = take()
            if dtype.code != _COMPLEX and _is_complex(taken):
                return None
            if _dtype(made := _by_library(taken, dtype)) == dtype:
                return made
    return None


def _own_dtype(x: Any, detach: bool) -> Any:
    """Return what the dtype of the elements is known by in a map, if dlx takes them.

    Those of another byte order are numbers of the same type.
    """
    try:
        return _core.convert(x, _core.Tensor, detach=detach).dtype
    except Exception:
        if (array := _array_of(x)) is not None:
            return _of_map(array.dtype.newbyteorder("="))
        # What JAX traces has no elements yet.
        with suppress(AttributeError, BufferError, TypeError, ValueError):
            return DType(x.dtype)
        raise


def convert(
    x: Any,
    to: Any,
    dtype: Any,
    device: Any,
    copy: bool | None,
    detach: bool,
    share_readonly: bool,
) -> Any:
    """Convert ``x``, and have its elements cast, as `dlx.convert` says of ``dtype``."""
    how: dict[str, Any] = {"device": device, "copy": copy, "detach": detach}
    how["share_readonly"] = share_readonly
    if isinstance(dtype, Mapping):
        casts = {_of_map(of): to for of, to in dtype.items()}
        dtype = casts.get(_own_dtype(x, detach))
        if dtype is None:
            return _core.convert(x, to, **how)
    dtype = DType(dtype)
    try:
        return _cast(_core.convert(x, to, **how), dtype, copy)
    except (BufferError, RuntimeError) as refused:
        if isinstance(refused, CopyRefused) or (x := _castable(x, detach)) is None:
            raise
        if copy is False:
            before = _core.convert(x, _core.Tensor, detach=detach).dtype
            raise CopyRefused(
                f"copy=False, but the tensor is of {before} and not of {dtype}"
            ) from refused
        if (own := _at_source(x, dtype, detach)) is None:
            raise
        try:
            return _cast(_core.convert(own, to, **how), dtype, None)
        except BufferError:
            raise refused from refused.__cause__
