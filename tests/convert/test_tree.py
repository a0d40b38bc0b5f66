"""Containers of tensors: `convert_tree`, and the mapping under it."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import dlx
import numpy as np
import pytest
from dlx import _core
from dlx._containers.tree import map_tree
from hypothesis import given
from hypothesis import strategies as st
from support.fake_table import Forward, table_class
from support.optional_libraries import requires

LEAVES = st.integers() | st.text() | st.none() | st.binary()
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=20,
)


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


@dataclass
class Point:
    """A dataclass."""

    x: Any
    y: Any = 0
    total: ClassVar[list[int]] = [1]


@dataclass(frozen=True, slots=True)
class Frozen:
    """A dataclass that cannot be assigned to, and has no dictionary."""

    x: Any


@dataclass
class Derived:
    """A dataclass with a field that its constructor does not take."""

    x: Any
    made: Any = field(init=False)


def double(leaf: Any) -> Any:
    """Change integers, and nothing else."""
    return leaf * 2 if type(leaf) is int else leaf


def doubled(tree: Any) -> Any:
    """What `double` should make of a tree of builtin containers."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(map(doubled, tree))
    if isinstance(tree, dict):
        return {key: doubled(value) for key, value in tree.items()}
    return double(tree)


@given(TREES)
def test_every_leaf_is_mapped(tree: Any) -> None:
    assert map_tree(double, tree) == doubled(tree)


@given(TREES)
def test_a_tree_in_which_nothing_changes_is_returned(tree: Any) -> None:
    assert map_tree(lambda leaf: leaf, tree) is tree


def test_only_what_holds_something_changed_is_rebuilt() -> None:
    kept, changed = ["a"], [1]
    made = map_tree(double, {"kept": kept, "changed": changed})
    assert made["kept"] is kept
    assert made["changed"] == [2]
    assert changed == [1]


def test_a_named_tuple_stays_one() -> None:
    made = map_tree(double, Pair(1, [2]))
    assert made == Pair(2, [4])
    assert type(made) is Pair


def test_a_tuple_of_torch_stays_one() -> None:
    torch = requires("torch")
    result = torch.ones(2, 2).max(0)
    made = dlx.convert_tree(result, np)
    assert type(made) is type(result)
    assert type(made.values) is np.ndarray


def test_a_subclass_of_list_keeps_its_attributes() -> None:
    class Named(list[Any]):
        name = ""

    tree = Named([1, "a"])
    tree.name = "it"
    made = map_tree(double, tree)
    assert type(made) is Named
    assert (list(made), made.name) == ([2, "a"], "it")


def test_a_default_dict_keeps_its_factory() -> None:
    tree: collections.defaultdict[str, Any] = collections.defaultdict(list, a=1)
    made = map_tree(double, tree)
    assert type(made) is collections.defaultdict
    assert (made["a"], made["b"]) == (2, [])
    assert "b" not in tree


def test_an_ordered_dict_keeps_its_order() -> None:
    made = map_tree(double, collections.OrderedDict(b=1, a=2))
    assert list(made.items()) == [("b", 2), ("a", 4)]
    assert type(made) is collections.OrderedDict


def test_keys_are_left_alone() -> None:
    assert map_tree(double, {1: 1}) == {1: 2}


def test_a_dataclass_is_copied() -> None:
    tree = Point(1, [2])
    made = map_tree(double, tree)
    assert made == Point(2, [4])
    assert tree == Point(1, [2])
    assert made.total is Point.total


def test_a_frozen_dataclass_is_copied() -> None:
    assert map_tree(double, Frozen(1)) == Frozen(2)


def test_a_field_that_is_not_set_stays_so() -> None:
    made = map_tree(double, Derived(1))
    assert made.x == 2
    assert not hasattr(made, "made")


def test_a_dataclass_itself_is_a_leaf() -> None:
    assert map_tree(double, Point) is Point


def test_a_container_that_is_a_tensor_is_a_leaf() -> None:
    """A mixin class may be a list, a dict or a dataclass."""

    @dataclass
    class Labelled(dlx.ExchangeMixin, exchange="data"):
        data: Any
        label: str = ""

    made = dlx.convert_tree([Labelled(np.ones(2))], np.ndarray)
    assert type(made[0]) is np.ndarray


def test_an_exception_of_the_function_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        map_tree(lambda leaf: 1 // leaf, [1, [0]])


@pytest.mark.parametrize("form", [lambda x: [x], lambda x: (x,), lambda x: {0: x}])
def test_depth_has_no_limit(form: Any) -> None:
    tree: Any = 1
    for _ in range(100_000):
        tree = form(tree)
    made = map_tree(double, tree)
    assert map_tree(lambda leaf: leaf, tree) is tree
    for _ in range(100_000):
        made = made[0]
    assert made == 2


def cycles(leaf: Any) -> dict[str, Any]:
    """Containers that contain themselves, and `leaf`."""
    one: list[Any] = [leaf]
    one.append(one)
    through: dict[str, Any] = {"a": (leaf, [Point(0)])}
    through["a"][1][0].y = through
    outside: list[Any] = [[]]
    outside[0].append(outside)
    return {"list": one, "others": through, "beside": (leaf, outside)}


@pytest.mark.parametrize("kind", cycles(None))
def test_a_container_that_contains_itself_is_kept_if_nothing_changes(kind: str) -> None:
    tree = cycles("a")[kind]
    assert map_tree(double, tree) is tree


@pytest.mark.parametrize("kind", ["list", "others"])
def test_a_container_that_contains_itself_and_a_tensor_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^a container of type .* contains itself"):
        map_tree(double, cycles(1)[kind])


def test_a_cycle_without_tensors_beside_one_is_kept() -> None:
    tree = cycles(1)["beside"]
    made = map_tree(double, tree)
    assert made[0] == 2
    assert made[1] is tree[1]


# convert_tree


def test_tensors_of_all_kinds_are_converted_and_the_rest_is_kept() -> None:
    torch = requires("torch")
    other = object()
    array = np.arange(3.0)
    tree = {"a": [array, 1], "b": Pair(torch.ones(2), "text"), "c": (other, b"x")}
    made = dlx.convert_tree(tree, torch.Tensor)
    assert type(made["a"][0]) is torch.Tensor
    assert made["a"][0].data_ptr() == array.ctypes.data
    assert made["b"] is tree["b"]
    assert made["c"] is tree["c"]
    assert made["c"][0] is other


def test_a_tensor_alone_is_a_tree() -> None:
    assert type(dlx.convert_tree(np.ones(2), dlx.Tensor)) is dlx.Tensor


def test_keywords_are_those_of_convert() -> None:
    array = np.ones(2)
    [made] = dlx.convert_tree([array], np.ndarray, copy=True)
    assert made is not array
    assert not np.shares_memory(made, array)
    with pytest.raises(BufferError):
        dlx.convert_tree([array], dlx.Tensor, device="cuda:0")


# What is a tensor.


def test_what_has_a_table_or_dlpack_is_a_tensor() -> None:
    array = np.ones(2)
    tensor = dlx.from_dlpack(array)
    fake = table_class()()
    for x in (array, array.view(np.matrix), tensor, fake, Forward(tensor)):
        assert _core.is_tensor(x)


def test_what_frameworks_make_is_a_tensor() -> None:
    torch, jnp = requires("torch"), requires("jax.numpy")
    for x in (torch.ones(2), torch.nn.Parameter(torch.ones(2)), jnp.ones(2)):
        assert _core.is_tensor(x)


@pytest.mark.parametrize(
    "x",
    [
        *(1, 1.0, 1j, True, None, "a", b"a", bytearray(b"a"), [], (), {}),
        *(np, np.ndarray, np.float32(1), np.dtype("f4"), dlx.Tensor, Point),
        pytest.param(memoryview(b"a"), id="memoryview"),
        pytest.param(object(), id="object"),
    ],
    ids=repr,
)
def test_what_is_a_number_text_a_buffer_or_a_class_is_no_tensor(x: Any) -> None:
    assert not _core.is_tensor(x)


def test_an_attribute_of_an_instance_makes_no_tensor() -> None:
    """Objects that answer to every name are none."""

    class Anything:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    assert not _core.is_tensor(Anything())


def test_tensors_that_record_gradients_are_detached_on_request() -> None:
    """docs/convert.md: what a model returns, as arrays."""
    torch = requires("torch")
    tree = {"loss": torch.ones(1, requires_grad=True), "batch": [torch.zeros(2)]}
    made = dlx.convert_tree(tree, np, detach=True)
    assert made["loss"].ctypes.data == tree["loss"].data_ptr()
    with pytest.raises(BufferError, match="requires grad"):
        dlx.convert_tree(tree, np)
