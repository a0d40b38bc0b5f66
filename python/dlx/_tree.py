"""Containers of tensors: every leaf mapped, everything around it kept."""

from __future__ import annotations

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._core import Device

__all__ = ["convert_tree", "held_by", "map_tree"]

_IMMUTABLE = 1 << 8  # of the flags of a type: no class statement made it


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
    the fields of dataclasses, in instances of subclasses too, at any depth. All else is
    left as it is: keys, sets, deques, ``UserDict``, classes of attrs.

    These containers are rebuilt where something in them changed; ``tree`` itself is
    never changed. What is at several places, a tensor or a container, is converted once
    and stays one object. What is rebuilt keeps its type and its attributes without a
    call of any method of its class: neither ``__init__`` nor ``__post_init__`` nor
    ``__setitem__`` runs. Attributes that hold one of the converted items follow it.

    Raises ``ValueError`` for a container that contains itself and a tensor to be
    converted, and what `dlx.convert` raises.
    """

    def convert(leaf: Any) -> Any:
        if _core.is_tensor(leaf):
            return _core.convert(leaf, to, device=device, copy=copy)
        return leaf

    return map_tree(convert, tree)


def map_tree(
    function: Callable[[Any], Any], tree: Any, rebuilt: list[Any] | None = None
) -> Any:
    """Apply ``function`` to the leaves of ``tree``; rebuild what holds a changed one.

    What is a container, and how it is rebuilt, `convert_tree` says; tensors are leaves.
    ``function`` is called once for each leaf, in order. Containers that are made are
    appended to ``rebuilt``. Nothing here is recursive.
    """
    parts = _parts(tree)
    if parts is None:
        return function(tree)
    # By identity, with what is mapped: it may have been made when it was asked for.
    mapped: dict[int, tuple[Any, Any]] = {}
    # The containers that lead here, and whether they were met in themselves.
    inside = {id(tree): False}
    way = [(tree, parts, iter(parts))]
    while way:
        container, parts, rest = way[-1]
        for part in rest:
            at = id(part)
            if at in mapped:
                continue
            if at in inside:
                inside[at] = True
                continue
            inner = _parts(part)
            if inner is None:
                mapped[at] = (part, function(part))
                continue
            inside[at] = False
            way.append((part, inner, iter(inner)))
            break
        else:
            way.pop()
            changed = {}
            for part in parts:
                old, new = mapped.get(id(part), (part, part))
                if new is not old:
                    changed[id(old)] = new
            # Where it was met in itself it was left as it is.
            if inside.pop(id(container)) and changed:
                raise ValueError(
                    f"{_name(container)} contains itself: it cannot be given again "
                    "with other tensors in it"
                )
            made = container
            if changed:
                made = _rebuilt(container, changed)
                if rebuilt is not None:
                    rebuilt.append(made)
            mapped[id(container)] = (container, made)
    return made


def _parts(tree: Any) -> list[Any] | tuple[Any, ...] | None:
    """Give what a container holds; None for a leaf."""
    kind = type(tree)
    if kind is tuple:
        found: tuple[Any, ...] = tree
        return found
    if kind is list:
        return [*tree]
    if kind is dict:
        return [*tree.values()]
    if not (
        issubclass(kind, (list, tuple, dict)) or hasattr(kind, "__dataclass_fields__")
    ) or _core.is_tensor(tree):
        return None
    parts = [item for _, item in _items(tree)]
    for name in _fields(tree):
        # An `init=False` field may not have been set.
        if (value := getattr(tree, name, _UNSET)) is not _UNSET:
            parts.append(value)
    return parts


def held_by(container: Any) -> list[Any]:
    """Give what a container holds, the keys of a dict with it."""
    keys = dict.keys(container) if isinstance(container, dict) else ()
    return [*keys, *(_parts(container) or ())]


_UNSET = object()


def _fields(tree: Any) -> list[str]:
    """Name the fields of a dataclass; none of anything else, of classes neither."""
    if type(getattr(type(tree), "__dataclass_fields__", None)) is not dict:
        return []
    from dataclasses import fields

    return [field.name for field in fields(type(tree))]


def _items(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Give keys and items as they are stored, whatever methods of a subclass show."""
    kind = type(tree)
    if issubclass(kind, dict):
        yield from _base(kind).items(tree)
    elif issubclass(kind, list):
        yield from enumerate(list.__iter__(tree))
    elif issubclass(kind, tuple):
        yield from enumerate(tuple.__iter__(tree))


def _base(kind: type) -> Any:
    """Find the first base that is no Python class, whose instances may hide more."""
    return next(base for base in kind.__mro__ if base.__flags__ & _IMMUTABLE)


def _rebuilt(tree: Any, changed: dict[int, Any]) -> Any:
    """Give ``tree`` with what changed, by identity, in the place of what was there."""

    kind = type(tree)
    if kind is list:
        return [changed.get(id(item), item) for item in tree]
    if kind is tuple:
        return tuple([changed.get(id(item), item) for item in tree])
    if kind is dict:
        return {key: changed.get(id(item), item) for key, item in tree.items()}

    def now(old: Any) -> Any:
        return changed.get(id(old), old)

    items = {key: now(item) for key, item in _items(tree)}
    made = _blank(tree, items)
    if issubclass(kind, list):
        list.__setitem__(made, slice(None), items.values())
    elif issubclass(kind, dict):
        base = _base(kind)
        for key, item in items.items():
            base.__setitem__(made, key, item)
    _take_attributes(made, tree, now)
    for name in _fields(tree):
        # What is no attribute of the instance: a property, a default of the class.
        new = now(getattr(tree, name, _UNSET))
        if new is not _UNSET and getattr(made, name, _UNSET) is not new:
            object.__setattr__(made, name, new)  # frozen ones too
    return made


def _blank(tree: Any, items: dict[Any, Any]) -> Any:
    """Make an instance of the class of ``tree``; only tuples need their items now."""
    from collections import OrderedDict, defaultdict

    kind = type(tree)
    base = _base(kind)
    try:
        if base is tuple:
            return tuple.__new__(kind, items.values())
        if base in (object, list, dict, OrderedDict, defaultdict):
            made = base.__new__(kind)
            if base is defaultdict:
                base.__init__(made, tree.default_factory)
            return made
    except TypeError:
        pass  # There is C code below the class after all.
    if issubclass(kind, tuple):
        # `torch.return_types.max`, say, takes an iterable.
        make, (_, *more), *_ = tree.__reduce__()
        made = make(tuple(items.values()), *more)
    else:
        from copy import copy

        made = copy(tree)
    if type(made) is not kind or made is tree:
        raise TypeError(f"{_name(tree)} cannot be copied to hold other tensors")
    return made


def _take_attributes(made: Any, tree: Any, now: Callable[[Any], Any]) -> None:
    """Give ``made`` the attributes of ``tree``; those that hold an item follow it."""
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
    return f"a container of type {type(tree).__module__}.{type(tree).__qualname__}"
