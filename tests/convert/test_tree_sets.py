"""`convert_tree`: sets, frozensets and deques, and what `strict=True` refuses."""

from __future__ import annotations

import sys
from array import array
from collections import ChainMap, deque
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest
from support.containers import is_of, to_dlx
from support.dlx_producers import Stored

A, B = np.arange(3.0), np.arange(4.0)


class Tagged(set[Any]):
    """A set with an attribute and a constructor of its own."""

    def __init__(self, tag: str, items: Any) -> None:
        """Take arguments that `set` does not."""
        super().__init__(items)
        self.tag = tag

    def add(self, item: Any) -> None:
        """Not be called."""
        raise AssertionError


class Frozen(frozenset[Any]):
    """A frozenset with an attribute."""

    tag = ""


class Recent(deque[Any]):
    """A deque with an attribute and a constructor of its own."""

    def __init__(self, tag: str, items: Any) -> None:
        """Take arguments that `deque` does not."""
        super().__init__(items, maxlen=4)
        self.tag = tag

    def append(self, item: Any) -> None:
        """Not be called."""
        raise AssertionError


# Deques


def test_a_deque_is_rebuilt_in_order() -> None:
    tree = deque([A, 1, [B]])
    made = to_dlx(tree)
    assert type(made) is deque
    assert is_of(made[0], A)
    assert made[1] == 1
    assert is_of(made[2][0], B)
    assert tree[0] is A


@pytest.mark.parametrize("maxlen", [None, 2, 3])
def test_a_deque_keeps_its_maximum_length(maxlen: int | None) -> None:
    made = to_dlx(deque([A, 1], maxlen))
    assert made.maxlen == maxlen
    assert is_of(made[0], A)
    assert len(made) == 2


def test_a_subclass_of_deque_keeps_its_attributes() -> None:
    made = to_dlx(Recent("it", [A, 1]))
    assert type(made) is Recent
    assert (made.tag, made.maxlen, made[1]) == ("it", 4, 1)
    assert is_of(made[0], A)


def test_a_deque_that_contains_itself_and_a_tensor_is_refused() -> None:
    tree: deque[Any] = deque([A])
    tree.append(tree)
    with pytest.raises(ValueError, match=r"collections\.deque contains itself"):
        to_dlx(tree)
    tree[0] = 1
    assert to_dlx(tree) is tree


# Sets


@pytest.mark.parametrize("kind", [set, frozenset, Frozen])
def test_a_set_is_rebuilt(kind: Any) -> None:
    tensor = Stored(A)
    tree = kind([tensor, "a"])
    made = to_dlx(tree)
    assert type(made) is kind
    assert len(made) == 2
    assert "a" in made
    assert is_of(next(item for item in made if item != "a"), A)
    assert tensor in tree


def test_a_subclass_of_set_keeps_its_attributes() -> None:
    made = to_dlx(Tagged("it", [Stored(A)]))
    assert type(made) is Tagged
    assert made.tag == "it"
    assert is_of(next(iter(made)), A)


def test_attributes_of_a_frozenset_are_kept() -> None:
    tree = Frozen([Stored(A)])
    tree.tag = "it"
    assert to_dlx(tree).tag == "it"


def test_a_set_without_tensors_is_kept() -> None:
    tree = {"a": {1, 2}, "b": frozenset("ab"), "c": deque([1])}
    assert to_dlx(tree) is tree


@pytest.mark.parametrize("kind", [set, frozenset])
def test_items_without_a_hash_are_refused_at_their_set(kind: Any) -> None:
    """The advice is right: a tuple holds them."""
    tree = {"a": [1, kind([Stored(A)])]}
    with pytest.raises(
        TypeError, match=r"cannot hold numpy\.ndarray, .*; pass a list or a tuple"
    ) as refused:
        dlx.convert_tree(tree, np.ndarray)
    assert refused.value.__notes__ == ["at tree['a'][1]"]
    assert type(dlx.convert_tree((Stored(A),), np.ndarray)[0]) is np.ndarray


def test_sets_given_to_a_bridged_function_are_converted() -> None:
    """docs/bridge.md, Arguments."""

    @dlx.bridge(dlx.Tensor)
    def same(a: Any, b: Any) -> Any:
        assert type(next(iter(a))) is type(b[0]) is dlx.Tensor
        return a, b

    made = same({Stored(A)}, deque([Stored(B)], 1))
    assert type(next(iter(made[0]))) is type(made[1][0]) is Stored
    assert made[1].maxlen == 1


# strict=True


@dataclass
class Box:
    """A dataclass."""

    x: Any


PLAIN: list[Any] = [None, True, 1, 1.5, 1j, "a", b"a", np.float32(1), np.float64(1)]


@pytest.mark.parametrize("leaf", PLAIN, ids=repr)
def test_numbers_and_text_are_kept_in_strict_trees(leaf: Any) -> None:
    tree = [leaf]
    assert to_dlx(tree, strict=True) is tree
    assert to_dlx(leaf, strict=True) is leaf


def test_a_number_of_numpy_is_one_whatever_sys_modules_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leaf is asked, not a name."""
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    tree = [np.float32(1), np.datetime64("2026-01-01")]
    assert to_dlx(tree, strict=True) is tree


UNKNOWN: list[Any] = [object(), ChainMap({1: A}), iter([A]), Box, len, slice(2)]


@pytest.mark.parametrize("leaf", UNKNOWN, ids=lambda leaf: type(leaf).__name__)
def test_what_convert_refuses_raises_at_its_place_in_strict_trees(leaf: Any) -> None:
    tree = {"a": [A, Box((1, leaf))]}
    with pytest.raises(Exception) as alone:  # noqa: PT011
        dlx.convert(leaf, dlx.Tensor)
    with pytest.raises(type(alone.value)) as refused:
        to_dlx(tree, strict=True)
    assert str(refused.value) == str(alone.value)
    assert refused.value.__notes__ == ["at tree['a'][1].x[1]"]
    assert to_dlx(tree)["a"][1] is tree["a"][1]


def test_what_convert_takes_beside_tensors_is_converted_in_strict_trees() -> None:
    """Python buffers, for example."""
    leaf = array("d", [1, 2])
    [made] = to_dlx([leaf], strict=True)
    assert isinstance(made, dlx.Tensor)
    assert made.data_ptr == leaf.buffer_info()[0]
    assert to_dlx([leaf])[0] is leaf


def test_items_that_become_equal_are_not_lost() -> None:
    """docs/bridge.md: a set holds each of them, or there is no set."""

    class Same(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: object) -> None:
            self.data = data

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    tensors = {dlx.from_dlpack(np.zeros(1)), dlx.from_dlpack(np.ones(1))}
    with pytest.raises(ValueError, match="are equal, so it would hold fewer"):
        dlx.convert_tree(tensors, Same)
