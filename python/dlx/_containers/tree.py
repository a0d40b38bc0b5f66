"""Containers of tensors: map every leaf, keep everything around it."""

from __future__ import annotations

from .. import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._core import Device

    # Each container on the way to a leaf, a position in it, and what is there.
    Way = list[tuple[Any, int, Any]]

__all__ = ["convert_tree", "has_no_numbers", "map_tree", "path", "place"]


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
    buffers, other mappings, arrays of pydata's sparse, arrays and columns of strings,
    dates, categories or objects, tables of several dtypes.
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
        return _core.map_tree(tree, leaf, more, other, _odd(), None, way)
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
        if not (_core.is_tensor(leaf) or _may_be_array(leaf)):
            return leaf
        try:
            return convert(leaf)
        except Exception:
            if has_no_numbers(leaf):
                return leaf
            raise

    return convert_or_leave


def _has_protocol(leaf: object) -> bool:
    """Whether the class of a leaf has a protocol of arrays."""
    return any(hasattr(type(leaf), name) for name in _PROTOCOLS)


def _may_be_array(leaf: object) -> bool:
    """Whether a leaf that is no tensor may be an array, a column or a table.

    Arrays of NumPy have no numbers then.
    """
    from .elements import is_of

    if not _has_protocol(leaf) or issubclass(type(leaf), type) or _is_plain(leaf):
        return False
    return not is_of(leaf, "numpy", "ndarray")


def has_no_numbers(leaf: Any) -> bool:
    """Whether a leaf, which `convert` has refused, is a tensor in no library.

    So is an instance of a mixin class that exports such an array; one that exports no
    array is wrong.
    """
    from . import elements

    try:
        if hasattr(type(leaf), "__dlx_export__"):
            inner = leaf.__dlx_export__()
            is_array = _has_protocol(inner) or hasattr(inner, "dtype")
            return is_array and has_no_numbers(inner)
        _core.from_dlpack(leaf)
    except (AttributeError, TypeError):
        # Such as a Dataset of xarray, which has methods that only raise.
        return not _core.is_tensor(leaf)
    except Exception:
        words = elements.of(leaf)
        has_others = words is not None and not elements.are_numbers(words)
        return has_others or not elements.must_be_dense(leaf)
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
    return _core.map_tree(tree, function, (), function, _odd(), rebuilt, way)


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
    """Write how one gets from a container to the part at a position of `parts_of`."""
    from .parts import WITH_PARTS, fields_of, items_of, may_be_registered, with_parts
    from .registries import is_registered

    if may_be_registered(type(container)) and is_registered(type(container)):
        attributes = getattr(container, "__dict__", {})
        names = [name for name, value in attributes.items() if value is part]
        return f".{names[0]}" if names else f"<child {at}>"
    if isinstance(container, (set, frozenset)):
        return "{...}"
    keys = [key for key, _ in items_of(container)]
    if at < len(keys):
        from reprlib import Repr

        short = Repr()
        short.maxstring = short.maxother = 100
        return f"[{short.repr(keys[at])}]"
    if with_parts(type(container)) in WITH_PARTS[:-1]:
        return ""  # of what `data` holds, the next step says where
    fields = [name for name in fields_of(container) if hasattr(container, name)]
    return f".{fields[at - len(keys)]}"


_of_others: tuple[Any, ...] = ()


def _odd() -> tuple[Any, ...]:
    """Return what reads, rebuilds and compares containers that Rust leaves to Python.

    Imported on first use: ``import dlx`` does without.
    """
    global _of_others
    if not _of_others:
        from .parts import parts_of
        from .rebuilt import is_as_read, rebuilt

        _of_others = parts_of, rebuilt, is_as_read
    return _of_others
