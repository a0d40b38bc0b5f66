"""Nodes that other libraries' registries of trees know, by their own functions.

Only registries whose module is imported already are asked, at each object: a class may
be registered at any time. The first that knows a class flattens and rebuilds its
instances: `torch.utils._pytree`, `jax.tree_util`, then the global namespace of optree.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    # What rebuilds a node of new children.
    Build = Callable[[list[Any]], Any]

__all__ = ["Node", "is_registered", "registered"]


class Node(list["Any"]):
    """The children of a registered node, and what makes another of new ones."""

    __slots__ = ("build",)

    build: Build

    def __init__(self, children: Iterable[Any], build: Build) -> None:
        super().__init__(children)
        self.build = build


def registered(tree: Any) -> Node | None:
    """Flatten one level of ``tree`` by the first registry that knows its exact type."""
    kind = type(tree)
    for name, (find, flatten) in _REGISTRIES.items():
        module = sys.modules.get(name)
        if module is not None and (found := find(module, kind)):
            return flatten(module, found, tree)
    return None


def is_registered(kind: type) -> bool:
    """Whether a registry knows a class."""
    modules = sys.modules
    return any(
        name in modules and bool(find(modules[name], kind))
        for name, (find, _) in _REGISTRIES.items()
    )


def _known(found: Any, kind: type) -> Any:
    # optree answers for named tuples, too, which are containers of dlx.
    return found if found is not None and found.type is kind else None


def _find_torch(module: Any, kind: type) -> Any:
    try:
        return _known(getattr(module, "SUPPORTED_NODES", {}).get(kind), kind)
    except TypeError:  # the class has no hash, so nobody can register it
        return None


def _flatten_torch(module: Any, found: Any, tree: Any) -> Node:
    children, context = found.flatten_fn(tree)
    return Node(children, lambda new: found.unflatten_fn(new, context))


def _find_jax(module: Any, kind: type) -> Any:
    registry: Any = getattr(module, "default_registry", None)
    is_node: Any = getattr(registry, "is_node", None)
    if is_node is None or not is_node(kind):
        return None
    if issubclass(kind, tuple):
        # It knows every named tuple; those are containers of dlx.
        own = sys.modules.get("jax._src.tree_util")
        return kind in getattr(own, "_registry", ())
    return True


def _flatten_jax(module: Any, found: Any, tree: Any) -> Node:
    # JAX asks for the node first; whatever is below is a leaf, None too.
    first = iter([False])
    children, built = module.tree_flatten(tree, is_leaf=lambda _: next(first, True))
    return Node(children, lambda new: module.tree_unflatten(built, new))


def _find_optree(module: Any, kind: type) -> Any:
    registry: Any = getattr(module, "register_pytree_node", None)
    get: Any = getattr(registry, "get", None)
    try:
        # Asking this dictionary takes a fraction of the time, where it is still there.
        if get is None or kind not in module.registry._NODETYPE_REGISTRY:
            return None
    except AttributeError:
        pass
    except TypeError:  # the class has no hash, so nobody can register it
        return None
    return _known(get(kind), kind)


def _flatten_optree(module: Any, found: Any, tree: Any) -> Node:
    children, metadata, *_ = found.flatten_func(tree)
    return Node(children, lambda new: found.unflatten_func(metadata, tuple(new)))


_REGISTRIES = {
    "torch.utils._pytree": (_find_torch, _flatten_torch),
    "jax.tree_util": (_find_jax, _flatten_jax),
    "optree": (_find_optree, _flatten_optree),
}
