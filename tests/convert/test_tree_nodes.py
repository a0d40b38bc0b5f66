"""`dlx.convert_tree` through nodes of other libraries' registries (docs/bridge.md)."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires
from support.python_process import run_python

A = np.arange(3.0)

Flatten = Callable[[Any], tuple[Any, Any]]
Build = Callable[[Any, Any], Any]  # of what does not change, and of children


def _with_torch(kind: type, flatten: Flatten, build: Build) -> None:
    pytree = requires("torch.utils._pytree")

    def as_list(x: Any) -> tuple[list[Any], Any]:
        children, static = flatten(x)
        return [*children], static

    def of_children(children: Any, static: Any) -> Any:
        return build(static, children)

    pytree.register_pytree_node(kind, as_list, of_children)


def _with_jax(kind: type, flatten: Flatten, build: Build) -> None:
    requires("jax.tree_util").register_pytree_node(kind, flatten, build)


def _with_optree(kind: type, flatten: Flatten, build: Build) -> None:
    optree = requires("optree")
    everywhere = vars(optree.registry)["__GLOBAL_NAMESPACE"]
    optree.register_pytree_node(kind, flatten, build, namespace=everywhere)


EVERY = pytest.mark.parametrize("register", [_with_torch, _with_jax, _with_optree])
Register = Callable[[type, Flatten, Build], None]


class Node:
    """Children, and something that is none."""

    def __init__(self, *children: Any, static: Any = None) -> None:
        """Take both."""
        self.children = [*children]
        self.static = static


def node_of(register: Register) -> Any:
    """Return a new class of nodes that a registry knows."""
    kind: Any = type("Own", (Node,), {})
    register(
        kind,
        lambda x: (tuple(x.children), x.static),
        lambda static, children: kind(*children, static=static),
    )
    return kind


def to_dlx(tree: Any) -> Any:
    """Convert every tensor to a `dlx.Tensor`."""
    return dlx.convert_tree(tree, dlx.Tensor)


@EVERY
def test_the_children_of_a_registered_node_are_converted(register: Register) -> None:
    """docs/bridge.md, "Arguments"."""
    kind = node_of(register)
    tree = kind(A, [A, None], "text", static=A)
    made = to_dlx({"x": tree})["x"]
    assert type(made) is kind
    assert made.children[0] is made.children[1][0]
    assert isinstance(made.children[0], dlx.Tensor)
    assert made.children[1:] == [[made.children[0], None], "text"]
    assert made.static is A
    assert tree.children[0] is A


@EVERY
def test_a_registered_node_without_tensors_stays_itself(register: Register) -> None:
    """docs/bridge.md, "Arguments"."""
    tree = node_of(register)(1, "text", static=A)
    assert to_dlx(tree) is tree


@EVERY
def test_a_shared_node_stays_one(register: Register) -> None:
    """docs/bridge.md, "Arguments"."""
    tree = node_of(register)(A)
    first, second = to_dlx([tree, tree])
    assert first is second
    assert first is not tree


@EVERY
def test_a_node_that_contains_itself_is_refused(register: Register) -> None:
    """docs/bridge.md, "Arguments"."""
    tree = node_of(register)(A)
    tree.children.append([tree])
    with pytest.raises(ValueError, match="contains itself"):
        to_dlx(tree)


@EVERY
def test_children_that_are_made_when_asked_for_are_converted(
    register: Register,
) -> None:
    """docs/bridge.md, "Arguments"."""
    kind: Any = type("Rows", (Node,), {})
    register(
        kind,
        lambda x: (tuple(row[:] for row in x.children), None),
        lambda _, children: kind(*children),
    )
    made = to_dlx(kind(A, A + 1))
    assert [child.numpy().tolist() for child in made.children] == [[0, 1, 2], [1, 2, 3]]


@EVERY
def test_a_node_of_a_class_without_hash_is_left_alone(register: Register) -> None:
    """docs/bridge.md, "Arguments": no registry can know it."""
    register(type("Other", (), {}), lambda x: ((), None), lambda *_: None)

    class Meta(type):
        __hash__ = None  # type: ignore[assignment]

    class Odd(metaclass=Meta):
        x = A

    tree = Odd()
    assert to_dlx(tree) is tree


@EVERY
def test_a_subclass_of_a_registered_class_is_left_alone(register: Register) -> None:
    """docs/bridge.md, "Arguments": the exact type is registered, or it is not."""
    tree = type("Derived", (node_of(register),), {})(A)
    assert to_dlx(tree) is tree


@EVERY
@pytest.mark.parametrize("at", ["flatten", "build"])
def test_what_the_functions_of_a_node_raise_passes_through(
    register: Register, at: str
) -> None:
    """docs/bridge.md, "Arguments"."""

    def fail(*_: object) -> Any:
        raise KeyError("mine")

    kind: Any = type("Strict", (Node,), {})
    flatten: Flatten = fail if at == "flatten" else lambda x: (tuple(x.children), None)
    register(kind, flatten, fail)
    with pytest.raises(KeyError, match="mine"):
        to_dlx([kind(A)])


@EVERY
def test_an_error_names_the_child(register: Register) -> None:
    """docs/bridge.md, "Errors"."""
    torch = requires("torch")
    kind = node_of(register)
    tree = {"x": kind(1, torch.ones(2, requires_grad=True))}
    with pytest.raises(BufferError) as raised:
        to_dlx(tree)
    assert raised.value.__notes__ == ["at tree['x']<child 1>"]


def test_an_error_names_the_attribute_that_a_child_is() -> None:
    """docs/bridge.md, "Errors"."""
    torch, tree_util = requires("torch"), requires("jax.tree_util")

    @dataclass
    class Pair:
        first: Any
        second: Any

    tree_util.register_dataclass(Pair, ["first", "second"], [])
    with pytest.raises(BufferError) as raised:
        to_dlx(Pair(1, [torch.ones(2, requires_grad=True)]))
    assert raised.value.__notes__ == ["at tree.second[0]"]


def test_static_fields_of_a_dataclass_of_jax_stay() -> None:
    """docs/bridge.md, "Arguments": its registry comes before the dataclass."""
    tree_util = requires("jax.tree_util")

    @dataclass
    class Layer:
        weight: Any
        table: Any

    tree_util.register_dataclass(Layer, ["weight"], ["table"])
    made = to_dlx(Layer(A, A))
    assert isinstance(made.weight, dlx.Tensor)
    assert made.table is A


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


@pytest.mark.parametrize(
    "tree",
    [OrderedDict(b=A, a=1), defaultdict(list, b=A, a=1), Pair(A, 1), {"b": A, "a": 1}],
    ids=lambda tree: type(tree).__name__,
)
def test_containers_that_the_registries_know_by_default_stay_as_they_are(
    tree: Any,
) -> None:
    """docs/bridge.md, "Arguments": the order of keys, and the class."""
    for name in ("torch.utils._pytree", "jax.tree_util", "optree"):
        requires(name)
    made = to_dlx(tree)
    assert type(made) is type(tree)
    assert [*made] == [*tree] if isinstance(tree, dict) else made.second == 1
    assert getattr(made, "default_factory", list) is list


def test_a_named_tuple_that_is_registered_is_a_node() -> None:
    """docs/bridge.md, "Arguments"."""

    class Own(NamedTuple):
        first: Any
        second: Any

    _with_jax(
        Own, lambda x: ((x.first,), x.second), lambda second, x: Own(x[0], second)
    )
    made = to_dlx(Own(A, A))
    assert isinstance(made.first, dlx.Tensor)
    assert made.second is A


def test_the_first_registry_that_knows_a_class_is_asked() -> None:
    """docs/bridge.md, "Arguments": torch, then JAX, then optree."""
    kind: Any = type("Own", (Node,), {})
    marks = [(_with_optree, "optree"), (_with_jax, "jax"), (_with_torch, "torch")]
    for register, mark in marks:

        def build(_: Any, children: Any, mark: str = mark) -> Any:
            return kind(*children, static=mark)

        register(kind, lambda x: (tuple(x.children), None), build)
        assert to_dlx(kind(A)).static == mark


def test_a_tensor_that_is_registered_is_a_tensor() -> None:
    """docs/bridge.md, "Arguments"."""

    class Own(np.ndarray):
        pass

    def fail(*_: object) -> Any:
        raise AssertionError("not reached")

    _with_jax(Own, fail, fail)
    assert isinstance(to_dlx([A.view(Own)])[0], dlx.Tensor)


def test_a_bridge_looks_into_registered_nodes() -> None:
    """docs/bridge.md, "Arguments"."""
    kind = node_of(_with_jax)

    @dlx.bridge(dlx.Tensor)
    def first(x: Any) -> Any:
        return type(x.children[0])

    assert first(kind(A)) is dlx.Tensor


def test_no_registry_is_imported() -> None:
    """docs/bridge.md, "Arguments"."""
    code = """
import sys, dlx
class X: pass
x = X()
assert dlx.convert_tree([x], dlx.Tensor)[0] is x
assert not {"torch", "jax", "optree"} & {*sys.modules}
"""
    assert run_python(code) == (0, "", "")
