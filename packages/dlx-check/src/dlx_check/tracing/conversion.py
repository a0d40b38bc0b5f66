"""``convert`` while a trace is on: by way of a tensor, whose end is the result's."""

from __future__ import annotations

from importlib import import_module
from threading import get_ident
from types import ModuleType
from typing import Any

from dlx_check.core import dlx

__all__ = ["convert", "target_of"]

# What each thread imports for a conversion, and the class that it is for.
_conversions: dict[int, tuple[object, type] | None] = {}


def convert(values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    """Return what ``dlx.convert`` returns, noted if the way by a tensor leads there.

    ``names`` are those of the last values, which are keywords.
    """
    count = len(values) - len(names)
    arguments, options = values[:count], dict(zip(names, values[count:], strict=True))
    try:
        made = _by_tensor(*arguments, **options)
    except Exception:
        # Another way may, and its error is that of an untraced call.
        made = None
    return dlx._core.plain_convert(*arguments, **options) if made is None else made


def target_of(source: object) -> type | None:
    """Return the class that ``source`` is imported for on this thread."""
    conversion = _conversions.get(get_ident())
    return conversion[1] if conversion and conversion[0] is source else None


def _by_tensor(
    x: Any,
    to: Any,
    /,
    *,
    device: Any = None,
    copy: bool | None = None,
    dtype: Any = None,
    detach: bool = False,
    share_readonly: bool = False,
) -> Any:
    target = _array_type(to)
    # It may be what is returned, or make the result itself.
    if isinstance(x, (dlx._core.Tensor, target)):
        return None
    if detach:
        x = dlx._core.plain_convert(x, type(x), detach=True)
    thread = get_ident()
    outer = _conversions.get(thread)
    _conversions[thread] = x, target
    try:
        tensor = dlx._core.from_dlpack(x, device=device, copy=copy)
    finally:
        _conversions[thread] = outer
    # If a copy was asked for, the tensor is one.
    kept = None if copy else copy
    how: dict[str, Any] = {"device": device, "copy": kept, "dtype": dtype}
    return dlx._core.plain_convert(tensor, to, share_readonly=share_readonly, **how)


def _array_type(to: Any) -> type:
    if isinstance(to, type):
        return to
    if isinstance(to, str):
        to = import_module(to)
    if isinstance(to, ModuleType) or hasattr(to, "__array_namespace_info__"):
        return dlx._core.array_type(to)
    return type(to)
