"""Containers other than exact lists, tuples and dicts, made again with new items."""

from __future__ import annotations

from .. import _core
from .parts import (
    CONTAINERS,
    UNSET,
    WITH_PARTS,
    base_of,
    fields_of,
    items_of,
)
from .registries import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["is_as_read", "rebuilt"]


def rebuilt(
    tree: Any, changed: dict[int, Any], contains_itself: bool, parts: Any
) -> Any:
    """Rebuild ``tree``; ``changed`` maps the id of an old item to the new one.

    ``parts`` is what `parts_of` returned; None only for what contains itself. Makes an
    empty instance of the same class (a tuple or frozenset with its items), stores the
    items through the builtin base, then copies attributes, slots and dataclass fields.
    """
    # What it holds in place of itself would have to be the result.
    if contains_itself:
        raise ValueError(
            f"{_name(tree)} contains itself: it cannot be given again with other "
            "tensors in it"
        )
    kind = type(tree)

    def now(old: Any) -> Any:
        return changed.get(id(old), old)

    if type(parts) is Node:
        return parts.build([now(child) for child in parts])
    old, names = (
        [*items_of(tree)],
        [name for name in fields_of(tree) if hasattr(tree, name)],
    )
    # Of other fields, `parts` has what they were.
    if len(old) + len(names) != len(parts) or not all(
        item is part for (_, item), part in zip(old, parts, strict=False)
    ):
        raise ValueError(
            f"{_name(tree)} was changed while it was converted; pass a copy of it"
        )
    items = {key: now(item) for key, item in old}
    if issubclass(kind, dict) and len(items) < dict.__len__(tree):
        raise ValueError(
            f"keys of {_name(tree)} are equal by now, so it would hold fewer items"
        )
    if issubclass(kind, (set, frozenset)):
        _check_hashes(tree, items)
    made = _blank(tree, items)
    if issubclass(kind, list):
        list.__setitem__(made, slice(None), items.values())
    elif issubclass(kind, dict):
        base = base_of(kind)
        for key, item in items.items():
            base.__setitem__(made, key, item)
    elif issubclass(kind, set):
        set.clear(made)
        set.update(made, items.values())
    elif issubclass(kind, CONTAINERS[-1]):
        base = base_of(kind)
        base.clear(made)
        base.extend(made, items.values())
    _take_attributes(made, tree, now)
    for name, part in zip(names, parts[len(old) :], strict=True):
        # Fields that are not instance attributes: properties, defaults of the class.
        new = now(part)
        if getattr(made, name, UNSET) is not new:
            object.__setattr__(made, name, new)  # frozen ones too
    return made


def is_as_read(tree: Any, parts: Any) -> bool:
    """Whether a container still holds what `parts_of` returned, as far as it is stored.

    To ask a registered node, or a property, may make other objects each time.
    """
    if type(parts) is Node:
        return True
    held = [item for _, item in items_of(tree)]
    if len(held) > len(parts):
        return False
    if any(item is not part for item, part in zip(held, parts, strict=False)):
        return False
    names = [name for name in fields_of(tree) if hasattr(tree, name)]
    if len(held) + len(names) != len(parts):
        return False
    stored = getattr(tree, "__dict__", {})
    fields = zip(names, parts[len(held) :], strict=True)
    return all(stored.get(name, part) is part for name, part in fields)


def _check_hashes(tree: Any, items: dict[Any, Any]) -> None:
    """Refuse items of a set that no set can hold."""
    for item in items.values():
        try:
            hash(item)
        except TypeError as error:
            kind = type(item)
            raise TypeError(
                f"{_name(tree)} cannot hold {_core.type_name(kind)}, "
                "which has no hash; pass a list or a tuple"
            ) from error
    if len(set(items.values())) < len(items):
        raise ValueError(
            f"converted items of {_name(tree)} are equal, so it would hold fewer; "
            "pass a list or a tuple"
        )


def _blank(tree: Any, items: dict[Any, Any]) -> Any:
    """Make an instance of the class of ``tree``; immutable ones get their items."""
    kind = type(tree)
    base = base_of(kind)
    try:
        if base in (tuple, frozenset):
            return base.__new__(kind, items.values())
        from collections import OrderedDict, defaultdict, deque

        kinds = (object, list, dict, set, OrderedDict, defaultdict, deque)
        if base in (*kinds, WITH_PARTS[-1]):
            made = base.__new__(kind)
            if base is defaultdict:
                base.__init__(made, tree.default_factory)
            elif base is deque:
                base.__init__(made, (), deque.maxlen.__get__(tree))
            return made
    except TypeError:
        pass  # There is C code below the class after all.
    if issubclass(kind, tuple):
        # Such as `torch.return_types.max`, which takes an iterable.
        make, (_, *more), *_ = tree.__reduce__()
        made = make(tuple(items.values()), *more)
    else:
        from copy import copy

        made = copy(tree)
    if type(made) is not kind or made is tree:
        raise TypeError(f"{_name(tree)} cannot be copied to hold other tensors")
    return made


def _take_attributes(made: Any, tree: Any, now: Callable[[Any], Any]) -> None:
    """Copy the attributes of ``tree`` to ``made``, mapped by ``now``."""
    try:
        attributes = object.__getattribute__(tree, "__dict__")
    except AttributeError:
        pass
    else:
        if attributes is tree:  # a dict whose items are its attributes
            object.__setattr__(made, "__dict__", made)
        else:
            mine = object.__getattribute__(made, "__dict__")
            mine.update({name: now(value) for name, value in attributes.items()})
    from types import MemberDescriptorType

    for base in type(tree).__mro__:
        if "__slots__" not in vars(base):
            continue
        for member in vars(base).values():
            if type(member) is MemberDescriptorType:
                try:
                    value = member.__get__(tree)
                except AttributeError:
                    continue  # not set
                member.__set__(made, now(value))


def _name(tree: Any) -> str:
    module = getattr(type(tree), "__module__", "")
    return f"a container of type {module}.{type(tree).__qualname__}"
