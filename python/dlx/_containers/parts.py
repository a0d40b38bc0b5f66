"""What containers other than exact lists, tuples and dicts hold, as it is stored."""

from __future__ import annotations

from collections import UserDict, UserList, deque
from types import SimpleNamespace

from . import registries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["base_of", "fields_of", "held_by", "items_of", "parts_of", "with_parts"]

CONTAINERS = (list, tuple, dict, set, frozenset, deque)
WITH_PARTS = (UserDict, UserList, SimpleNamespace)
"""Containers of their attributes, or of what one attribute holds."""
UNSET = object()
_IMMUTABLE = 1 << 8  # of the flags of a type: no class statement made it


def parts_of(tree: Any) -> list[Any] | None:
    """Return what a container holds; None for anything else that is no tensor."""
    kind = type(tree)
    if may_be_registered(kind) and (node := registries.registered(tree)) is not None:
        found: list[Any] = node
        return found
    parts = []
    if issubclass(kind, CONTAINERS):
        parts = [item for _, item in items_of(tree)]
    elif not (with_parts(kind) or hasattr(kind, "__dataclass_fields__")):
        return None
    elif all(hasattr(kind, name) for name in ("__array__", "dtype", "shape")):
        return None  # one array, as of zarr
    for name in fields_of(tree):
        # An `init=False` field may be unset.
        if (value := getattr(tree, name, UNSET)) is not UNSET:
            parts.append(value)
    return parts


def may_be_registered(kind: type) -> bool:
    """Whether a class is a Python class; all know the builtin containers."""
    return not kind.__flags__ & _IMMUTABLE


def held_by(container: Any) -> list[Any]:
    """Return what a container holds, including the keys of a dict."""
    keys = dict.keys(container) if isinstance(container, dict) else ()
    return [*keys, *(parts_of(container) or ())]


def with_parts(kind: type) -> type | None:
    """Return which of `WITH_PARTS` a class is of, by its bases, not by an ABC."""
    bases = kind.__mro__
    return next((own for own in WITH_PARTS if any(own is b for b in bases)), None)


def fields_of(tree: Any) -> list[str]:
    """Return the names of the attributes that are parts; [] for most containers."""
    if (base := with_parts(type(tree))) is not None:
        stored = object.__getattribute__(tree, "__dict__")
        return [*stored] if base is WITH_PARTS[-1] else ["data"]
    if type(getattr(type(tree), "__dataclass_fields__", None)) is not dict:
        return []
    from dataclasses import fields

    return [field.name for field in fields(type(tree))]


def items_of(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and items as stored, bypassing methods that a subclass overrides."""
    kind = type(tree)
    if issubclass(kind, dict):
        yield from base_of(kind).items(tree)
    elif issubclass(kind, list):
        yield from enumerate(list.__iter__(tree))
    elif issubclass(kind, tuple):
        yield from enumerate(tuple.__iter__(tree))
    elif issubclass(kind, CONTAINERS):
        yield from enumerate(base_of(kind).__iter__(tree))


def base_of(kind: type) -> Any:
    """Return the first base that is not a Python class; its C code may hold state."""
    return next(base for base in kind.__mro__ if base.__flags__ & _IMMUTABLE)
