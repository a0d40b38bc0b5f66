"""`dlx.bridge`: a list of numbers is a list, or refused.

docs/bridge.md, Arguments.
"""

from __future__ import annotations

import asyncio
from typing import Any

import dlx
import numpy as np
import pytest

NUMBERS: list[Any] = [
    [1],
    [1.5, 2],
    [[1, 2], [3, 4]],
    [[], [True]],
    [1j],
    [np.float32(1)],
]
OTHERS: list[Any] = [[], [[]], (1, 2), ["a"], [1, "a"], [None], [1, None], {"a": [1]}]


@dlx.bridge(np.ndarray)
def same(a: Any) -> Any:
    return a


@dlx.bridge(np.ndarray, lists="refuse")
def strict(a: Any, *more: Any, **rest: Any) -> Any:
    return a


@pytest.mark.parametrize("numbers", NUMBERS, ids=repr)
def test_a_list_of_numbers_is_a_list(numbers: Any) -> None:
    assert same(numbers) is numbers


@pytest.mark.parametrize("numbers", NUMBERS, ids=repr)
def test_a_list_of_numbers_can_be_refused(numbers: Any) -> None:
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("a", (numbers,), {}),
        ("1", (1, numbers), {}),
        ("x", (np.ones(1),), {"x": numbers}),
    ]
    for name, args, kwargs in calls:
        with pytest.raises(TypeError, match="pass an array of them") as refused:
            strict(*args, **kwargs)
        assert refused.value.__notes__ == [f"argument {name} of strict"]


@pytest.mark.parametrize("numbers", NUMBERS, ids=repr)
def test_an_array_of_the_numbers_is_taken(numbers: Any) -> None:
    """The advice is right."""
    assert type(strict(np.asarray(numbers[-1]))) is np.ndarray


@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_other_containers_pass_where_lists_are_refused(other: Any) -> None:
    assert strict(other) is other


def test_a_list_of_tensors_passes_where_lists_are_refused() -> None:
    tensor = dlx.from_dlpack(np.ones(2))
    made = strict([tensor, 1])
    assert [type(item) for item in made] == [dlx.Tensor, int]


def test_a_list_of_numbers_that_contains_itself_is_refused() -> None:
    numbers: list[Any] = [1]
    numbers.append(numbers)
    with pytest.raises(TypeError, match="list of numbers"):
        strict(numbers)


def test_methods_and_coroutines_refuse_lists_too() -> None:
    class Model:
        @dlx.bridge(np.ndarray, lists="refuse")
        @staticmethod
        def run(a: Any) -> Any:
            return a

    @dlx.bridge(np.ndarray, lists="refuse")
    async def later(a: Any) -> Any:
        return a

    with pytest.raises(TypeError, match="list of numbers"):
        Model.run([1])
    with pytest.raises(TypeError, match="list of numbers"):
        asyncio.run(later([1]))


@pytest.mark.parametrize("lists", ["convert", None, True, ""])
def test_another_option_is_a_value_error(lists: Any) -> None:
    with pytest.raises(ValueError, match="expected 'keep' or 'refuse'"):
        dlx.bridge(np.ndarray, lists=lists)
