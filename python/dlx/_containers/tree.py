"""Containers of tensors: map every leaf, keep everything around it."""

from __future__ import annotations

from .. import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .._core import Device

    # Each container on the way to a leaf, a position in it, and what is there.
    Way = list[tuple[Any, int, Any]]

__all__ = ["convert_tree", "has_no_numbers", "held_by", "map_tree", "path", "place"]

_IMMUTABLE = 1 << 8  # of the flags of a type: no class statement made it


def convert_tree(
    tree: Any,
    /,
    to: Any,
    *,
    device: Device | str | tuple[int | str, int] | None = None,
    copy: bool | None = None,
    dtype: Any = None,
    detach: bool = False,
    share_readonly: bool = False,
    strict: bool = False,
) -> Any:
    """Return ``tree`` with every tensor in it converted, as by `dlx.convert`.

    Searches lists, tuples, named tuples, sets, frozensets, deques, ``UserList``, the
    values of dicts and ``UserDict``, the attributes of ``SimpleNamespace`` and the
    fields of dataclasses, including subclasses, at any depth, and the children
    of instances whose exact class is registered with `torch.utils._pytree`,
    `jax.tree_util` or optree, by the first of these that is imported and knows it.
    Of what a library makes, a pandas Series or an xarray DataArray too, `dlx.convert`
    takes what has numbers. Everything else stays as it is: keys, attrs classes, Python
    buffers, other mappings, arrays and columns of strings, dates, categories or
    objects, tables of several dtypes.
    With ``strict=True`` only numbers, text, bytes and None do, and their subclasses;
    other leaves that are no tensors go to `dlx.convert` too, which converts or refuses
    them.

    A container is rebuilt if something in it changed; ``tree`` itself is never
    modified. A tensor or container that occurs several times is converted once and
    stays one object. A rebuilt container keeps its type and attributes, and no method
    of its class is called: not ``__init__``, ``__post_init__`` or ``__setitem__``. An
    attribute that holds a converted item gets the new one. Registered instances are
    flattened and rebuilt by the functions that were registered. The result has what was
    in a list or dict when it was read, whatever other code puts into it meanwhile.

    Raises ``ValueError`` for a container that contains itself and a tensor to convert,
    for a dict whose keys have become equal, and for any other container than a list or
    dict that was changed meanwhile; ``TypeError`` for a set whose converted items have
    no hash, and for a container as ``to``; and the exceptions of `dlx.convert`; all
    with a note that says where in the tree. Raises ``ValueError`` for a container with
    nothing to convert that was changed after it was read.

        >>> import numpy as np
        >>> batch = {"x": (np.ones(2),), "name": "first"}
        >>> dlx.convert_tree(batch, dlx.Tensor)
        {'x': (dlx.Tensor(float64[2], cpu, [1.0, 1.0]),), 'name': 'first'}
    """

    if isinstance(to, (dict, list, tuple)):
        raise TypeError(
            f"to is a {type(to).__name__}; expected an array type, a namespace or its "
            "name, or a tensor, after the tree"
        )
    leaf: Callable[..., Any] = _core.convert
    more: tuple[Any, ...] = (to,)
    how = {"device": device, "copy": copy, "dtype": dtype, "detach": detach}
    how["share_readonly"] = share_readonly
    if how != _AS_IT_IS:
        # Only without keywords has `convert` a fast entry.
        leaf, more = _converting(to, how), ()
    convert = _converting(to, how)
    other = _unless_plain(convert) if strict else _if_array(convert)
    way: Way = []
    try:
        return _core.map_tree(tree, leaf, more, other, _ODD, None, way)
    except Exception as error:
        if place := path(way):
            error.add_note(f"at tree{place}")
        raise


_AS_IT_IS = dict(device=None, copy=None, dtype=None, detach=False, share_readonly=False)


def _converting(to: Any, how: dict[str, Any]) -> Callable[[Any], Any]:
    """Return the conversion of a leaf."""

    def convert(leaf: Any) -> Any:
        return _core.convert(leaf, to, **how)

    return convert


def _unless_plain(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``convert`` for all but numbers, text, bytes and None."""
    return lambda leaf: leaf if _is_plain(leaf) else convert(leaf)


# Of these, a class that is no tensor's has at least one if `convert` may take it.
_PROTOCOLS = (
    *("__dlpack__", "__array__", "__array_interface__", "__array_struct__"),
    *("__cuda_array_interface__", "__arrow_c_stream__", "__arrow_c_array__"),
    "__arrow_c_device_array__",
)


def _if_array(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``convert`` for arrays, columns and tables; what has no numbers stays."""

    def convert_or_leave(leaf: Any) -> Any:
        kind = type(leaf)
        if not any(hasattr(kind, name) for name in _PROTOCOLS):
            return leaf
        if issubclass(kind, type) or _is_plain(leaf) or _is_numpy(leaf):
            return leaf
        try:
            return convert(leaf)
        except Exception:
            if has_no_numbers(leaf):
                return leaf
            raise

    return convert_or_leave


def _is_numpy(leaf: object) -> bool:
    """Whether a leaf is an array of NumPy, which here has no numbers."""
    from sys import modules

    known = getattr(modules.get("numpy"), "ndarray", None)
    return isinstance(known, type) and isinstance(leaf, known)


def has_no_numbers(leaf: Any) -> bool:
    """Whether a leaf, which `convert` has refused, has no numbers for any library."""
    try:
        _core.from_dlpack(leaf)
    except BufferError:
        from . import elements

        words = elements.of(leaf)
        return words is not None and not elements.are_numbers(words)
    except (AttributeError, TypeError):
        return True  # such as a Dataset of xarray, which has methods that only raise
    except Exception:
        return False
    return False


def _is_plain(leaf: object) -> bool:
    """Whether a leaf is a number, text, bytes or None."""
    if isinstance(leaf, (int, float, complex, str, bytes, type(None))):
        return True
    # NumPy's scalars have one base that is the last before `object`.
    [base] = type(leaf).__mro__[-2:-1] or [object]
    return (base.__module__, base.__name__) == ("numpy", "generic")


def map_tree(
    function: Callable[[Any], Any],
    tree: Any,
    rebuilt: list[Any] | None = None,
    way: Way | None = None,
) -> Any:
    """Apply ``function`` to the leaves of ``tree``; rebuild containers that change.

    `convert_tree` defines what a container is and how it is rebuilt; tensors are
    leaves. ``function`` is called once for each leaf, in order. New containers are
    appended to ``rebuilt``. A depth-first walk with its own stack, so no depth is too
    much; the stack is ``way``, whose `path` is the place of an exception::

        visit(container):
            for part in container, unless already mapped:
                part is being visited:  note that it contains itself
                part is a leaf:         mapped[part] = function(part)
                part is a container:    visit(part)
            changed = the parts whose mapped[part] is not part
            if changed and container contains itself: raise ValueError
            mapped[container] = container rebuilt with changed, if any
    """
    way = [] if way is None else way
    return _core.map_tree(tree, function, (), function, _ODD, rebuilt, way)


def path(way: Way) -> str:
    """Where in a tree `map_tree` was when it raised, as it is written: ``[0].x``."""
    return "".join(_step(*step) for step in way)


def place(leaf: Any, tree: Any) -> str:
    """Where in a tree a leaf is, as `path` writes it."""
    way: Way = []

    def look(x: Any) -> Any:
        if x is leaf:
            raise LookupError
        return x

    try:
        map_tree(look, tree, way=way)
    except Exception:
        return path(way)
    return ""


def _step(container: Any, at: int, part: Any) -> str:
    """Write how one gets from a container to the part at a position of `_parts`."""
    from .registries import is_registered

    if _may_be_registered(type(container)) and is_registered(type(container)):
        attributes = getattr(container, "__dict__", {})
        names = [name for name, value in attributes.items() if value is part]
        return f".{names[0]}" if names else f"<child {at}>"
    if isinstance(container, (set, frozenset)):
        return "{...}"
    keys = [key for key, _ in _items(container)]
    if at < len(keys):
        from reprlib import Repr

        short = Repr()
        short.maxstring = short.maxother = 100
        return f"[{short.repr(keys[at])}]"
    if _with_parts(type(container)) in _WITH_PARTS[:-1]:
        return ""  # of what `data` holds, the next step says where
    fields = [name for name in _fields(container) if hasattr(container, name)]
    return f".{fields[at - len(keys)]}"


def _parts(tree: Any) -> list[Any] | None:
    """Return what a container holds; None for anything else that is no tensor."""
    kind = type(tree)
    containers = _CONTAINERS or _containers()
    if _may_be_registered(kind) and (node := _registries.registered(tree)) is not None:
        found: list[Any] = node
        return found
    parts = []
    if issubclass(kind, containers):
        parts = [item for _, item in _items(tree)]
    elif not (hasattr(kind, "__dataclass_fields__") or _with_parts(kind)):
        return None
    for name in _fields(tree):
        # An `init=False` field may be unset.
        if (value := getattr(tree, name, _UNSET)) is not _UNSET:
            parts.append(value)
    return parts


def _may_be_registered(kind: type) -> bool:
    """Whether a class is a Python class; all know the builtin containers."""
    return not kind.__flags__ & _IMMUTABLE


_CONTAINERS: tuple[type, ...] = ()
_WITH_PARTS: tuple[type, ...] = ()
"""Containers of their attributes, or of what one attribute holds."""
_registries: Any = None


def _containers() -> tuple[type, ...]:
    """Import containers and nodes, on first use: ``import dlx`` does without."""
    global _CONTAINERS, _WITH_PARTS, _registries
    from collections import UserDict, UserList, deque
    from types import SimpleNamespace

    from . import registries as _registries

    _WITH_PARTS = (UserDict, UserList, SimpleNamespace)
    _CONTAINERS = (list, tuple, dict, set, frozenset, deque)
    return _CONTAINERS


def _with_parts(kind: type) -> type | None:
    """Return which of `_WITH_PARTS` a class is of, by its bases, not by an ABC."""
    bases = kind.__mro__
    return next((own for own in _WITH_PARTS if any(own is b for b in bases)), None)


def held_by(container: Any) -> list[Any]:
    """Return what a container holds, including the keys of a dict."""
    keys = dict.keys(container) if isinstance(container, dict) else ()
    return [*keys, *(_parts(container) or ())]


_UNSET = object()


def _fields(tree: Any) -> list[str]:
    """Return the names of the attributes that are parts; [] for most containers."""
    if (base := _with_parts(type(tree))) is not None:
        stored = object.__getattribute__(tree, "__dict__")
        return [*stored] if base is _WITH_PARTS[-1] else ["data"]
    if type(getattr(type(tree), "__dataclass_fields__", None)) is not dict:
        return []
    from dataclasses import fields

    return [field.name for field in fields(type(tree))]


def _items(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and items as stored, bypassing methods that a subclass overrides."""
    kind = type(tree)
    if issubclass(kind, dict):
        yield from _base(kind).items(tree)
    elif issubclass(kind, list):
        yield from enumerate(list.__iter__(tree))
    elif issubclass(kind, tuple):
        yield from enumerate(tuple.__iter__(tree))
    elif issubclass(kind, _CONTAINERS):
        yield from enumerate(_base(kind).__iter__(tree))


def _base(kind: type) -> Any:
    """Return the first base that is not a Python class; its C code may hold state."""
    return next(base for base in kind.__mro__ if base.__flags__ & _IMMUTABLE)


def _rebuilt(
    tree: Any, changed: dict[int, Any], contains_itself: bool, parts: Any
) -> Any:
    """Rebuild ``tree``; ``changed`` maps the id of an old item to the new one.

    ``parts`` is what `_parts` returned; None only for what contains itself. Makes an
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

    if type(parts) is _registries.Node:
        return parts.build([now(child) for child in parts])
    old, names = (
        [*_items(tree)],
        [name for name in _fields(tree) if hasattr(tree, name)],
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
        base = _base(kind)
        for key, item in items.items():
            base.__setitem__(made, key, item)
    elif issubclass(kind, set):
        set.clear(made)
        set.update(made, items.values())
    elif issubclass(kind, _CONTAINERS[-1]):
        base = _base(kind)
        base.clear(made)
        base.extend(made, items.values())
    _take_attributes(made, tree, now)
    for name, part in zip(names, parts[len(old) :], strict=True):
        # Fields that are not instance attributes: properties, defaults of the class.
        new = now(part)
        if getattr(made, name, _UNSET) is not new:
            object.__setattr__(made, name, new)  # frozen ones too
    return made


def _is_as_read(tree: Any, parts: Any) -> bool:
    """Whether a container still holds what `_parts` returned, as far as it is stored.

    To ask a registered node, or a property, may make other objects each time.
    """
    if type(parts) is _registries.Node:
        return True
    held = [item for _, item in _items(tree)]
    if len(held) > len(parts):
        return False
    if any(item is not part for item, part in zip(held, parts, strict=False)):
        return False
    names = [name for name in _fields(tree) if hasattr(tree, name)]
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
    base = _base(kind)
    try:
        if base in (tuple, frozenset):
            return base.__new__(kind, items.values())
        from collections import OrderedDict, defaultdict, deque

        kinds = (object, list, dict, set, OrderedDict, defaultdict, deque)
        if base in (*kinds, _WITH_PARTS[-1]):
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


_ODD = (_parts, _rebuilt, _is_as_read)
