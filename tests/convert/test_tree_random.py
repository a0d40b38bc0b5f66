"""`convert_tree`: random containers, shared and cyclic, beside what a graph says."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.containers import (
    ByAttribute,
    Derived,
    FrozenSlotted,
    Own,
    Pair,
    Plain,
    Row,
    Slotted,
    Strict,
)

pytestmark = pytest.mark.slow


def names(parts: list[Any]) -> dict[str, Any]:
    return {f"p{at}": part for at, part in enumerate(parts)}


def two(parts: list[Any]) -> tuple[Any, Any]:
    return (parts[0], parts[-1]) if parts else (None, None)


MAKERS: list[Callable[[list[Any]], Any]] = [
    list,
    tuple,
    deque,
    lambda parts: deque(parts, 9),
    names,
    lambda parts: OrderedDict(reversed(names(parts).items())),
    lambda parts: defaultdict(list, names(parts)),
    lambda parts: Counter(names(parts)),
    lambda parts: Strict("s", names(parts)),
    lambda parts: ByAttribute(**names(parts)),
    lambda parts: Row("m", parts),
    lambda parts: Own(*two(parts)),
    lambda parts: Pair(*two(parts)),
    lambda parts: Plain(parts),
    lambda parts: Slotted(two(parts)[0]),
    lambda parts: FrozenSlotted(two(parts)[1]),
    lambda parts: Derived(*two(parts)),
]


@st.composite
def graphs(draw: st.DrawFn, cyclic: bool = False) -> Any:
    """A container of leaves and of containers that were made before."""
    pool: list[Any] = [1, "a", None, (), []]
    if not cyclic or draw(st.booleans()):
        pool += [np.arange(2.0), np.arange(3)]
    for _ in range(draw(st.integers(1, 12))):
        parts = draw(st.lists(st.sampled_from(range(len(pool))), max_size=4))
        make = draw(st.sampled_from(MAKERS))
        pool.append(make([pool[at] for at in parts]))
    tree = pool[-1]
    if cyclic:
        within = [tree, *reachable(tree).values()]
        holders = [x for x in within if isinstance(x, (list, dict))]
        for _ in range(draw(st.integers(0, 3)) if holders else 0):
            # Drawn by number: not everything here has a repr.
            holder = holders[draw(st.integers(0, len(holders) - 1))]
            part = within[draw(st.integers(0, len(within) - 1))]
            if isinstance(holder, list):
                list.append(holder, part)
            else:
                # Of dict itself it would be missing in the order.
                base = OrderedDict if isinstance(holder, OrderedDict) else dict
                base.__setitem__(holder, "later", part)
    return tree


def parts_of(tree: Any) -> list[tuple[Any, Any]]:
    """What a container holds, by key or name."""
    if isinstance(tree, (list, tuple, deque)):
        return [*enumerate(tree)]
    if isinstance(tree, dict):
        return [*tree.items()]
    if is_dataclass(tree):
        named = [field.name for field in fields(tree)]
        return [(name, getattr(tree, name)) for name in named if hasattr(tree, name)]
    return []


def reachable(tree: Any) -> dict[int, Any]:
    """All that lies in a container, by identity."""
    found: dict[int, Any] = {}
    ahead = [tree]
    while ahead:
        for _, part in parts_of(ahead.pop()):
            if id(part) not in found:
                found[id(part)] = part
                ahead.append(part)
    return found


def holds_tensor(tree: Any) -> bool:
    return any(isinstance(x, np.ndarray) for x in [tree, *reachable(tree).values()])


def shape_of(tree: Any) -> Any:
    """Who holds whom, to tell whether a container has been changed."""
    everything = [tree, *reachable(tree).values()]
    return [(id(x), [(key, id(part)) for key, part in parts_of(x)]) for x in everything]


def pairs(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """What was there and what is there, place by place."""
    ahead = [(old, new)]
    met = set()
    while ahead:
        old, new = ahead.pop()
        yield old, new
        if (id(old), id(new)) in met:
            continue
        met.add((id(old), id(new)))
        before, after = parts_of(old), parts_of(new)
        assert [key for key, _ in before] == [key for key, _ in after]
        for (_, one), (_, other) in zip(before, after, strict=True):
            ahead.append((one, other))


def pairs_by_id(old: Any, new: Any) -> Iterator[tuple[int, Any]]:
    return ((id(one), other) for one, other in pairs(old, new))


@given(graphs(), st.sampled_from([None, True]))
def test_every_place_has_what_it_had_and_what_was_one_is_one(
    tree: Any, copy: bool | None
) -> None:
    before = shape_of(tree)
    made = dlx.convert_tree(tree, dlx.Tensor, copy=copy)
    assert shape_of(tree) == before
    became: dict[int, Any] = {}
    came_from: dict[int, Any] = {}
    for old, new in pairs(tree, made):
        assert became.setdefault(id(old), new) is new
        assert came_from.setdefault(id(new), old) is old
        if isinstance(old, np.ndarray):
            assert type(new) is dlx.Tensor
            assert new.numpy().tolist() == old.tolist()
            assert (new.data_ptr == old.ctypes.data) is (copy is None)
            continue
        assert type(new) is type(old)
        assert (new is old) is not holds_tensor(old)
        if hasattr(old, "__dict__"):
            assert vars(old).keys() == vars(new).keys()


@given(graphs(cyclic=True))
def test_what_contains_itself_and_a_tensor_is_refused_and_nothing_else(
    tree: Any,
) -> None:
    everything = [tree, *reachable(tree).values()]
    cyclic = [x for x in everything if id(x) in reachable(x)]
    before = shape_of(tree)
    if any(holds_tensor(x) for x in cyclic):
        with pytest.raises(ValueError, match="contains itself"):
            dlx.convert_tree(tree, dlx.Tensor)
    else:
        kept = dict(pairs_by_id(tree, dlx.convert_tree(tree, dlx.Tensor)))
        assert all(kept[id(x)] is x for x in cyclic)
    assert shape_of(tree) == before
