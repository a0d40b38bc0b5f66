"""Containers of tensors: every leaf mapped, everything around it kept."""

from __future__ import annotations

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._core import Device

__all__ = ["convert_tree", "map_tree"]


def convert_tree(
    tree: Any,
    to: Any,
    /,
    *,
    device: Device | str | tuple[int | str, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Give ``tree`` with every tensor in it converted, as `dlx.convert` does.

    Tensors are looked for in lists, tuples, named tuples, dicts (among the values) and
    dataclasses, at any depth; these are rebuilt where something in them changed, and
    what is neither a container nor a tensor stays as it is. ``tree`` itself is never
    changed.
    """

    def convert(leaf: Any) -> Any:
        if _core.is_tensor(leaf):
            return _core.convert(leaf, to, device=device, copy=copy)
        return leaf

    return map_tree(convert, tree)


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply ``function`` to the leaves of ``tree``; rebuild what holds a changed one.

    Containers are lists, tuples (named ones too), dicts (their values) and instances of
    dataclasses, at any depth, and subclasses of these unless they are tensors
    themselves. All else is a leaf.

    What is rebuilt has the type of what was there. A subclass of list or dict and a
    dataclass are copied shallowly, so that a ``defaultdict`` keeps its factory, and
    frozen and ``init=False`` fields are no obstacle (``__post_init__`` does not run
    again); another tuple is made by ``_make`` or by its class from the items.
    """
    kind = type(tree)
    if kind is list or kind is tuple:
        return _sequence(function, tree)
    if kind is dict:
        return _dict(function, tree)
    is_sequence = isinstance(tree, (list, tuple))
    if not (
        is_sequence or isinstance(tree, dict) or hasattr(kind, "__dataclass_fields__")
    ):
        return function(tree)
    if _core.is_tensor(tree):
        return function(tree)
    if is_sequence:
        return _sequence(function, tree)
    if isinstance(tree, dict):
        return _dict(function, tree)
    return _dataclass(function, tree)


def _sequence(function: Callable[[Any], Any], tree: Any) -> Any:
    items = []
    changed = False
    for old in tree:
        new = map_tree(function, old)
        changed |= new is not old
        items.append(new)
    kind = type(tree)
    if not changed:
        return tree
    if kind is list:
        return items
    if isinstance(tree, list):
        copied = _copy(tree)
        copied[:] = items
        return copied
    # What is no named tuple, such as `torch.return_types.max`, takes an iterable.
    return getattr(kind, "_make", kind)(items)


def _dict(function: Callable[[Any], Any], tree: dict[Any, Any]) -> Any:
    changed = {}
    for key, old in tree.items():
        new = map_tree(function, old)
        if new is not old:
            changed[key] = new
    if not changed:
        return tree
    if type(tree) is dict:
        return tree | changed
    copied = _copy(tree)
    for key, new in changed.items():
        copied[key] = new
    return copied


def _dataclass(function: Callable[[Any], Any], tree: Any) -> Any:
    from dataclasses import fields

    changed = {}
    for field in fields(tree):
        # An `init=False` field may not have been set.
        if hasattr(tree, field.name):
            old = getattr(tree, field.name)
            new = map_tree(function, old)
            if new is not old:
                changed[field.name] = new
    if not changed:
        return tree
    copied = _copy(tree)
    for name, new in changed.items():
        object.__setattr__(copied, name, new)  # frozen ones too
    return copied


def _copy(tree: Any) -> Any:
    from copy import copy

    return copy(tree)
