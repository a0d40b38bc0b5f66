"""`convert_tree`: what it reads and when, while conversions run Python code."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import dlx
import numpy as np
import pytest
from support.containers import A, Calling, Pair, is_of, to_dlx
from support.optional_libraries import requires

B, C = np.arange(4.0), np.arange(5.0)


def never(*_: object) -> NoReturn:
    """Not be called."""
    raise AssertionError


# What containers say of themselves.


class Empty(list[Any]):
    """A list that shows nothing of what it holds."""

    __iter__ = __len__ = __getitem__ = __bool__ = never


class Hidden(tuple[Any, ...]):
    """A tuple of that kind."""

    __iter__ = __len__ = __getitem__ = __bool__ = never


class Secret(dict[int, Any]):
    """A dict of that kind."""

    __iter__ = __len__ = __getitem__ = __bool__ = never
    items = keys = values = copy = never


@pytest.mark.parametrize(
    ("tree", "read"),
    [
        (Empty([A, 1]), list.__getitem__),
        (Hidden([A, 1]), tuple.__getitem__),
        (Secret(zip([0, 1], [A, 1], strict=True)), dict.__getitem__),
    ],
)
def test_what_a_subclass_holds_is_converted_whatever_it_shows(
    tree: Any, read: Any
) -> None:
    [made] = to_dlx([tree])
    assert type(made) is type(tree)
    assert is_of(read(made, 0), A)
    assert read(made, 1) == 1


# Leaves.


def test_a_leaf_that_raises_ends_the_walk_at_its_place() -> None:
    """docs/bridge.md: the note says where."""

    def refuse() -> None:
        raise KeyError("mine")

    first, last = Calling(), Calling()
    tree = {"a": [first, Pair(1, {"b": (first, Calling(refuse), last)})]}
    with pytest.raises(KeyError, match="mine") as raised:
        to_dlx(tree)
    assert raised.value.__notes__ == ["at tree['a'][1][1]['b'][1]"]
    assert (first.exports, last.exports) == (1, 0)


def test_what_was_converted_before_an_error_is_released() -> None:
    class Held(np.ndarray[Any, Any]):
        pass

    array = np.arange(3.0).view(Held)
    alive = weakref.ref(array)
    with pytest.raises(TypeError):
        to_dlx([array, (array, object())], strict=True)
    del array
    gc.collect()
    assert alive() is None


def test_leaves_are_converted_once_each_and_in_order() -> None:
    calls: list[str] = []

    def leaf(name: str) -> Calling:
        return Calling(lambda: calls.append(name))

    a, b, c, d = map(leaf, "abcd")
    to_dlx([a, {"x": b, "y": [a, c]}, Pair(c, d), a])
    assert calls == ["a", "b", "c", "d"]


def test_leaves_that_share_memory_stay_two_that_do() -> None:
    torch = requires("torch")
    tensor = torch.zeros(4)
    made = dlx.convert_tree([tensor, tensor.view(2, 2), tensor], np)
    assert made[0] is made[2]
    assert made[0].shape, made[1].shape == ((4,), (2, 2))
    made[0][0] = 7
    assert made[1][0, 0] == tensor[0] == 7


def test_parts_that_are_made_for_each_reading_are_not_mistaken_for_each_other() -> None:
    """What is freed leaves its address to the next."""
    calls: list[int] = []

    @dataclass
    class Declared:
        x: Any

    class Making(Declared):
        @property
        def x(self) -> Any:
            return Calling(lambda: calls.append(self.at))

        @x.setter
        def x(self, at: Any) -> None:
            if isinstance(at, int):
                self.at = at

    to_dlx([Making(at) for at in range(200)])
    assert calls == [*range(200)]


def test_a_walk_may_start_inside_another() -> None:
    inner: list[Any] = []
    tree = [B, Calling(lambda: inner.append(to_dlx([B, (C, B)]))), B, C]
    made = to_dlx(tree)
    assert made[0] is made[2]
    assert inner[0][0] is inner[0][1][1]
    assert inner[0][0] is not made[0]
    assert is_of(made[3], C)
    assert is_of(inner[0][1][0], C)


@pytest.mark.parametrize("count", [1, 100, 1000, 5000])
def test_a_tree_of_any_size_keeps_its_order(count: int) -> None:
    arrays = [np.array([at]) for at in range(count)]
    tree = [arrays, dict(enumerate(reversed(arrays))), tuple(arrays)]
    for _ in range(2):
        made = to_dlx(tree)
        assert [tensor.tolist() for tensor in made[0]] == [[at] for at in range(count)]
        assert all(one is other for one, other in zip(made[0], made[2], strict=True))
        assert [*reversed(made[1].values())] == made[0]


def test_named_tuples_in_named_tuples_have_no_limit() -> None:
    tree: Any = A
    for _ in range(20_000):
        tree = Pair(tree, 1)
    made = to_dlx(tree)
    for _ in range(20_000):
        assert type(made) is Pair
        made = made.first
    assert is_of(made, A)


# What it is given.


def keywords() -> Iterator[dict[str, Any]]:
    """Give the keywords of `convert`, as `convert_tree` takes them."""
    yield {}
    for copy in (None, True, False):
        for device in (None, "cpu", (1, 0)):
            for detach in (False, True):
                yield {"copy": copy, "device": device, "detach": detach}


@pytest.mark.parametrize("given", [*keywords()], ids=str)
def test_any_keywords_give_what_convert_gives(given: dict[str, Any]) -> None:
    torch = requires("torch")
    tensor = torch.ones(3)
    expected = dlx.convert(tensor, np, **given)
    [made] = dlx.convert_tree([tensor], np, **given)
    assert type(made) is np.ndarray
    shared = (made.ctypes.data, expected.ctypes.data) == (tensor.data_ptr(),) * 2
    assert shared is not given.get("copy", False)


@pytest.mark.parametrize(
    "to", [None, 1, pytest.param(object(), id="object"), list], ids=repr
)
@pytest.mark.parametrize("given", [{}, {"copy": True}], ids=str)
def test_a_wrong_target_is_refused_as_by_convert(to: Any, given: Any) -> None:
    with pytest.raises(Exception) as alone:  # noqa: PT011
        dlx.convert(A, to, **given)
    with pytest.raises(type(alone.value)) as refused:
        dlx.convert_tree({"a": A}, to, **given)
    assert str(refused.value) == str(alone.value)
    assert refused.value.__notes__[-1] == "at tree['a']"
    assert dlx.convert_tree({"a": 1}, to, **given) == {"a": 1}


@pytest.mark.parametrize("given", [{}, {"copy": None, "device": "cpu"}], ids=str)
def test_a_trace_notes_each_conversion(given: dict[str, Any]) -> None:
    """docs/inspect.md, the table of what is noted."""
    torch = requires("torch")
    tree = {"a": torch.ones(3), "b": [torch.ones(4)]}
    with dlx.trace() as trace:
        made = dlx.convert_tree(tree, np, **given)
        assert sorted(held.nbytes for held in trace.live) == [12, 16]
        del made
        trace.assert_released()


def test_a_key_that_has_another_hash_by_now_is_one_key() -> None:
    """The new dict has each key once."""

    class Key:
        value = 1

        def __hash__(self) -> int:
            return self.value

    key = Key()
    tree = {key: dlx.empty(1, "float32")}
    key.value = 2
    assert [*map(type, dlx.convert_tree(tree, np).values())] == [np.ndarray]


class Derived(dict[Any, Any]):
    """A dict that Python code reads and rebuilds."""


@pytest.mark.parametrize("kind", [dict, Derived])
def test_keys_that_are_equal_by_now_lose_no_tensor(kind: Any) -> None:
    """As items of a set that become equal; a new dict would have one of them."""

    class Key:
        value = 1

        def __hash__(self) -> int:
            return self.value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.value == other.value

    one, other = Key(), Key()
    other.value = 2
    tree = kind([(one, dlx.empty(1, "float32")), (other, dlx.empty(1, "float32"))])
    other.value = 1
    with pytest.raises(ValueError, match="are equal by now"):
        dlx.convert_tree(tree, np)
