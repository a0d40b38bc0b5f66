"""`convert_tree`: what containers of all kinds keep when they are rebuilt."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.containers import (
    Anything,
    ByAttribute,
    Doubled,
    Further,
    InStep,
    Key,
    Labelled,
    Liar,
    Output,
    Own,
    Pair,
    Plain,
    Row,
    Strict,
    is_of,
    to_dlx,
)
from support.optional_libraries import requires

A, B = np.arange(3.0), np.arange(4.0)


# What is at several places.


@pytest.mark.parametrize("copy", [None, True])
def test_a_tensor_at_two_places_stays_one_tensor(copy: bool | None) -> None:
    made = to_dlx({"a": A, "b": [A, (B,)], "c": Plain(A)}, copy=copy)
    assert made["a"] is made["b"][0]
    assert made["c"].x is made["a"]
    assert made["b"][1][0] is not made["a"]


def test_a_container_at_two_places_stays_one_container() -> None:
    shared = [A, 1]
    made = to_dlx((shared, {"a": shared}, [A, 1]))
    assert made[0] is made[1]["a"]
    assert made[0] is not made[2]
    assert shared[0] is A


def test_tensors_that_are_equal_stay_two() -> None:
    made = to_dlx([A, A.view()], copy=True)
    assert made[0].data_ptr != made[1].data_ptr


# Tuples.


@pytest.mark.parametrize("kind", [Pair, Further, Labelled, Own])
def test_a_tuple_of_any_class_is_rebuilt(kind: Any) -> None:
    made = to_dlx(kind(A, "a"))
    assert type(made) is kind
    assert is_of(made[0], A)
    assert made[1] == "a"
    assert len(made) == 2


def test_attributes_of_a_named_tuple_are_kept() -> None:
    tree = Labelled(A, 1)
    tree.label = A
    made = to_dlx(tree)
    assert made.label is made.first


def test_a_packed_sequence_of_torch_stays_one() -> None:
    torch = requires("torch")
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    made = to_dlx(packed)
    assert type(made) is type(packed)
    assert made.data.numpy().tolist() == [1] * 5
    assert made.sorted_indices is None


def test_what_torch_returns_keeps_its_names() -> None:
    torch = requires("torch")
    found = torch.sort(torch.tensor([2.0, 1.0]))
    made = to_dlx(found)
    assert type(made) is torch.return_types.sort
    assert made.indices.numpy().tolist() == [1, 0]


# Lists.


def test_a_list_keeps_its_slots_and_needs_no_init() -> None:
    made = to_dlx(Row("m", [A, 1]))
    assert type(made) is Row
    assert made.unit == "m"
    assert is_of(made[0], A)
    assert made[1:] == [1]


# Dicts.


def test_a_dict_that_takes_no_items_is_rebuilt() -> None:
    made = to_dlx(Strict("a", {"x": A, "n": 1}))
    assert type(made) is Strict
    assert is_of(made["x"], A)
    assert (made["n"], made.schema) == (1, "a")


@pytest.mark.parametrize("kind", [ByAttribute, InStep])
def test_attributes_stay_what_the_items_are(kind: Any) -> None:
    tree = kind()
    tree.x = A
    made = to_dlx(tree)
    assert is_of(made["x"], A)
    assert made.x is made["x"]
    made.x = 1
    assert made["x"] == 1
    assert tree.x is A


def test_a_default_dict_of_its_own_making_keeps_factory_and_attributes() -> None:
    tree = Doubled("d")
    tree["x"] = A
    made = to_dlx(tree)
    assert is_of(made["x"], A)
    assert (made["y"], made.name) == ([], "d")


def test_a_dict_that_is_a_dataclass_has_its_items_and_fields_converted() -> None:
    tree = Output(A, (A, B))
    made = to_dlx(tree)
    assert type(made) is Output
    assert list(made) == ["loss", "states"]
    assert is_of(made.loss, A)
    assert made["loss"] is made.loss is made.states[0]
    assert made["states"] is made.states


def test_a_field_of_a_dict_that_is_no_item_is_converted() -> None:
    @dataclass
    class Loose(dict[str, Any]):
        x: Any

    tree = Loose(A)
    tree["y"] = B
    made = to_dlx(tree)
    assert is_of(made.x, A)
    assert is_of(made["y"], B)


def test_the_order_of_an_ordered_dict_is_its_own() -> None:
    tree = collections.OrderedDict(a=A, b=1)
    tree.move_to_end("a")
    made = to_dlx(tree)
    assert list(made) == ["b", "a"]
    made.move_to_end("b")
    assert list(made) == ["a", "b"]


def test_a_counter_stays_one() -> None:
    tree: Any = {"a": A, "n": 2}
    made = to_dlx(collections.Counter(tree))
    assert type(made) is collections.Counter
    assert is_of(made["a"], A)
    assert made["missing"] == 0


def test_what_a_dict_shows_is_not_what_it_holds() -> None:
    class Squared(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return super().__getitem__(key) ** 2

        def items(self) -> Any:
            raise AssertionError

    made = to_dlx(Squared(x=A))
    assert is_of(dict(made.copy())["x"], A)


# What is left as it is.

UNTOUCHED: dict[str, Callable[[], Any]] = {
    "set": lambda: {Key(A)},
    "key": lambda: {Key(A): 1},
    "frozenset": lambda: frozenset([Key(A)]),
    "mapping proxy": lambda: types.MappingProxyType({"x": A}),
    "chain of dicts": lambda: collections.ChainMap({"x": A}),
    "iterator": lambda: iter([A]),
    "class": lambda: Plain,
    "object that looks like a list": lambda: Liar(),
    "object that has every attribute": lambda: Anything(),
}


@pytest.mark.parametrize("kind", UNTOUCHED)
def test_all_else_is_left_as_it_is(kind: str) -> None:
    tree = [UNTOUCHED[kind](), A]
    made = to_dlx(tree)
    assert made[0] is tree[0]
    assert is_of(made[1], A)
