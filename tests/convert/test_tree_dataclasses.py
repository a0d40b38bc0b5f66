"""`convert_tree`: dataclasses of all kinds."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

import numpy as np
import pytest
from support.containers import (
    Box,
    ByHand,
    Derived,
    Frozen,
    FrozenSlotted,
    Plain,
    Sloppy,
    Slotted,
    is_of,
    to_dlx,
)

A, B = np.arange(3.0), np.arange(4.0)


DATACLASSES = [Plain, Frozen, Slotted, FrozenSlotted, Derived, Sloppy]


@pytest.mark.parametrize("kind", DATACLASSES)
def test_a_field_that_is_not_set_stays_so_whatever_the_dataclass(kind: Any) -> None:
    tree = kind(A)
    made = to_dlx(tree)
    assert type(made) is kind
    assert is_of(made.x, A)
    assert not hasattr(made, "made")
    assert tree.x is A


@pytest.mark.parametrize("kind", DATACLASSES)
def test_a_field_that_init_does_not_take_is_converted(kind: Any) -> None:
    tree = kind(1)
    object.__setattr__(tree, "made", A)
    made = to_dlx(tree)
    assert made.x == 1
    assert is_of(made.made, A)


def test_slots_written_by_hand_in_a_frozen_dataclass_are_copied() -> None:
    made = to_dlx(ByHand(A, 2))
    assert is_of(made.x, A)
    assert made.made == 2


def test_keyword_only_fields_and_what_only_init_takes_are_no_obstacle() -> None:
    @dataclass
    class Made:
        x: Any
        scale: InitVar[int]
        _: KW_ONLY
        y: Any = None

        def __post_init__(self, scale: int) -> None:
            self.scaled = scale

    made = to_dlx(Made(A, 3, y=B))
    assert is_of(made.x, A)
    assert is_of(made.y, B)
    assert made.scaled == 3


def test_no_method_of_the_class_is_called() -> None:
    class Silent(Frozen):
        calls: list[str] = []  # noqa: RUF012

        def __init__(self, x: Any) -> None:
            object.__setattr__(self, "x", x)
            self.calls.append("init")

        def __setattr__(self, name: str, value: Any) -> None:
            self.calls.append("setattr")

        def __copy__(self) -> Any:
            return self

        def __reduce__(self) -> Any:
            raise AssertionError

    made = to_dlx(Silent(A))
    assert is_of(made.x, A)
    assert Silent.calls == ["init"]


def test_attributes_that_are_no_fields_are_kept_and_follow_a_field() -> None:
    tree = Plain(A)
    tree.alias, tree.other = A, B  # type: ignore[attr-defined]
    made = to_dlx(tree)
    assert made.alias is made.x
    assert made.other is B


def test_a_field_behind_a_property_is_converted() -> None:
    class Guarded(Plain):
        @property
        def x(self) -> Any:
            return self._x

        @x.setter
        def x(self, x: Any) -> None:
            self._x = x

    tree = Guarded(A)
    made = to_dlx(tree)
    assert is_of(made.x, A)
    assert made.x is made._x
    assert tree.x is A


def test_a_default_of_the_class_is_converted_for_the_instance() -> None:
    @dataclass
    class Default:
        x: Any = field(init=False, default=(A,))

    made = to_dlx(Default())
    assert is_of(made.x[0], A)
    assert Default.x == (A,)


def test_a_generic_dataclass_keeps_what_it_is_of() -> None:
    made = to_dlx(Box[np.ndarray](A))
    assert is_of(made.x, A)
    assert made.__orig_class__ == Box[np.ndarray]


def test_a_dataclass_that_is_an_exception_is_copied() -> None:
    @dataclass
    class Failed(Exception):
        x: Any

    failed = Failed(A)
    failed.args = ("why",)
    made = to_dlx(failed)
    assert is_of(made.x, A)
    assert failed.x is A


def test_a_dataclass_over_a_class_of_c_code_keeps_what_that_holds() -> None:
    @dataclass(init=False)
    class Applied(functools.partial[Any]):
        x: Any = None

    tree = Applied(max, 1)
    tree.x = A
    made = to_dlx(tree)
    assert type(made) is Applied
    assert is_of(made.x, A)
    assert made(0, 2) == 2


def test_a_dataclass_that_gives_itself_for_a_copy_is_refused_where_it_is_asked() -> (
    None
):
    """Another way to make one is not known for what C code has made."""

    @dataclass
    class Fixed(Exception):
        x: Any

        def __copy__(self) -> Any:
            return self

    fixed = Fixed(A)
    with pytest.raises(TypeError, match="cannot be copied to hold other tensors"):
        to_dlx(fixed)
    assert fixed.x is A
