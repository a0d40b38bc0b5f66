"""`convert_tree`: containers that other code changes while they are converted."""

from __future__ import annotations

import collections
import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dlx
import numpy as np
import pytest
from dlx._containers.tree import map_tree
from support.containers import A, Calling, is_of, to_dlx

B, C = np.arange(4.0), np.arange(5.0)


class Named(list[Any]):
    """A list with a class of its own."""


def test_a_list_that_grows_becomes_what_it_was() -> None:
    """What came late is in no result, so nothing in it is left as it is."""
    tree: list[Any] = [Calling(lambda: tree.append(B)), C]
    made = to_dlx(tree)
    assert made is not tree
    assert [type(part) for part in made] == [dlx.Tensor] * 2


def test_a_list_that_is_emptied_becomes_what_it_was() -> None:
    tree: list[Any] = [Calling(lambda: tree.clear()), B]
    made = to_dlx(tree)
    assert is_of(made[0], A)
    assert is_of(made[1], B)


def test_items_that_change_places_are_converted_where_they_were() -> None:
    tree: list[Any] = [Calling(lambda: tree.reverse()), B, 1]
    made = to_dlx(tree)
    assert is_of(made[0], A)
    assert is_of(made[1], B)
    assert made[2] == 1


def test_a_dict_that_changes_has_the_keys_that_it_had() -> None:
    def change() -> None:
        del tree["b"]
        tree["d"] = B
        tree["c"] = 1

    tree: dict[str, Any] = {"a": Calling(change), "b": B, "c": C}
    made = to_dlx(tree)
    assert [*made] == ["a", "b", "c"]
    assert all(is_of(made[key], x) for key, x in zip("abc", (A, B, C), strict=True))
    assert "b" not in tree


def test_a_list_that_grows_is_no_result_though_nothing_in_it_changes() -> None:
    tree: list[Any] = [1]

    def grow(x: Any) -> Any:
        tree.append(B)
        return x

    assert map_tree(grow, tree) == [1]
    assert tree == [1, B]


@dataclass
class Fields:
    """What holds anything."""

    x: Any
    y: Any = None


ODD: dict[str, tuple[Callable[..., Any], Callable[[Any], object]]] = {
    "deque": (lambda x: collections.deque([x]), lambda tree: tree.append(B)),
    "ordered dict": (
        lambda x: collections.OrderedDict(a=x),
        lambda tree: tree.update(b=B),
    ),
    "list of a subclass": (lambda x: Named([x]), lambda tree: tree.insert(0, B)),
    "set": (lambda x: {x, 1}, lambda tree: tree.add(2)),
}


@pytest.mark.parametrize(("make", "change"), ODD.values(), ids=ODD)
def test_any_other_container_that_changes_is_refused(make: Any, change: Any) -> None:
    """The advice is a copy, which nobody changes."""
    tree = make(Calling(lambda: change(tree)))
    with pytest.raises(ValueError, match=r"changed while .* pass a copy of it"):
        to_dlx([tree])
    tree = make(Calling(lambda: change(tree)))
    assert type(to_dlx([copy.copy(tree)])[0]) is type(tree)


def test_a_field_that_changes_is_converted_as_it_was() -> None:
    def change() -> None:
        tree.y = C

    tree = Fields(Calling(change), B)
    made = to_dlx(tree)
    assert is_of(made.x, A)
    assert is_of(made.y, B)


def test_a_container_that_is_put_into_itself_meanwhile_is_no_part_of_it() -> None:
    tree: list[Any] = [Calling(lambda: tree.append(tree))]
    [made] = to_dlx(tree)
    assert is_of(made, A)


def test_a_tree_that_another_thread_changes_is_converted() -> None:
    done = threading.Event()
    tree: dict[Any, Any] = {"list": [B] * 8, "dict": {0: C}}

    def change() -> None:
        at = 0
        while not done.is_set():
            at += 1
            tree["list"].append(A.view())
            tree["dict"][at % 50] = A.view()
            tree["dict"].pop((at + 25) % 50, None)
            del tree["list"][: at % 3]
            if len(tree["list"]) > 40:
                tree["list"].clear()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            made = to_dlx(tree)
            parts = [*made["list"], *made["dict"].values()]
            assert {type(part) for part in parts} <= {dlx.Tensor}
    finally:
        done.set()
        thread.join()


@dataclass
class Pair:
    """Holds two things."""

    one: Any
    other: Any


LATER: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "list": (lambda: [1, 2], lambda held: held.append(B)),
    "dict": (lambda: {"a": 1}, lambda held: held.update(b=B)),
    "list in a tuple": (lambda: ([1, 2],), lambda held: held[0].append(B)),
    "list of a class": (lambda: Named([1]), lambda held: held.append(B)),
    "ordered dict": (
        lambda: collections.OrderedDict(a=1),
        lambda held: held.update(a=B),
    ),
    "deque": (lambda: collections.deque([1]), lambda held: held.append(B)),
    "dataclass": (lambda: Pair(1, 2), lambda held: setattr(held, "other", B)),
    "field of a dataclass": (lambda: Pair(1, 2), lambda held: delattr(held, "other")),
    "set": (lambda: {1}, lambda held: held.add(2)),
}


@pytest.mark.parametrize(("make", "change"), LATER.values(), ids=LATER)
def test_a_container_that_changes_after_it_was_read_is_refused(
    make: Any, change: Any
) -> None:
    """It had nothing to convert, so it would be in the result as it is by now."""
    held = make()
    tree = [held, Calling(lambda: change(held))]
    with pytest.raises(ValueError, match="was changed while the tree was converted"):
        to_dlx(tree)
    same = make()
    assert to_dlx([same, C])[0] is same


def test_a_container_may_change_before_it_is_read() -> None:
    """What it holds by then is converted."""
    held: list[Any] = [1]
    made = to_dlx([Calling(lambda: held.append(B)), held])
    assert made[1][0] == 1
    assert is_of(made[1][1], B)


def test_a_container_may_change_after_the_last_conversion() -> None:
    """Nothing that runs later is a part of the walk."""
    held: list[Any] = [1]
    made = to_dlx([B, held])
    held.append(C)
    assert made[1] is held
