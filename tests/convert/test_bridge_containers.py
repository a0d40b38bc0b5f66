"""`dlx.bridge`: tensors in containers, and how long anything is kept."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

X = np.arange(6, dtype="float32").reshape(2, 3)


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Layer:
    """A dataclass."""

    weights: Any
    name: str = "layer"


def containers(x: Any) -> dict[str, Any]:
    return {
        "list": [x, 1],
        "tuple": ("a", x),
        "named tuple": Pair(None, x),
        "dict": {"k": x, "n": 2},
        "defaultdict": defaultdict(list, k=x),
        "dataclass": Layer(x),
        "nested": [{"k": (Pair(Layer(x), [x]),)}, OrderedDict(k=x)],
    }


def tensors(tree: Any) -> list[Any]:
    """Every tensor in a container, in order."""
    if isinstance(tree, dict):
        return tensors(list(tree.values()))
    if isinstance(tree, Layer):
        return tensors([tree.weights, tree.name])
    if isinstance(tree, (list, tuple)):
        return [found for item in tree for found in tensors(item)]
    return [tree] if hasattr(tree, "__dlpack__") else []


@dlx.bridge(np.ndarray)
def same(tree: Any) -> Any:
    found = tensors(tree)
    assert found
    assert {type(x) for x in found} == {np.ndarray}
    return tree


@pytest.mark.parametrize("kind", containers(None))
def test_tensors_in_a_container_are_converted_there_and_back(kind: str) -> None:
    torch = requires("torch")
    x = torch.from_numpy(X)
    given = containers(x)[kind]
    for result in same(given), same(tree=given):
        assert result is not given
        assert type(result) is type(given)
        assert {type(found) for found in tensors(result)} == {torch.Tensor}
        assert {found.data_ptr() for found in tensors(result)} == {x.data_ptr()}
        assert repr(result) == repr(given)
    assert all(found is x for found in tensors(given))


def test_a_container_without_foreign_tensors_is_passed_itself() -> None:
    for given in [1, "a"], {"k": X}, Layer(X), (None,):

        @dlx.bridge(np.ndarray)
        def check(tree: Any, given: Any = given) -> None:
            assert tree is given

        check(given)


def test_the_first_tensor_may_lie_in_a_container() -> None:
    @dlx.bridge(np.ndarray)
    def add(options: Any, b: Any) -> Any:
        return options["a"][1] + b

    result = add({"n": 3, "a": [None, dlx.from_dlpack(X)]}, X)
    assert type(result) is dlx.Tensor


def test_known_arguments_before_a_container_are_converted_once() -> None:
    calls = []

    class Counted(dlx.ExchangeMixin):
        def __dlx_export__(self) -> Any:
            calls.append(self)
            return X

        @classmethod
        def __dlx_import__(cls, tensor: dlx.Tensor) -> Counted:
            return cls()

    @dlx.bridge(np.ndarray)
    def first(a: Any, rest: Any) -> Any:
        return a

    counted = Counted()
    first(counted, 1)
    calls.clear()
    dlx.convert(counted, np.ndarray)
    asked = len(calls)
    assert type(first(counted, [1])) is Counted
    assert len(calls) == 2 * asked


def test_results_in_containers_are_converted_leaf_by_leaf() -> None:
    @dlx.bridge(np.ndarray)
    def split(a: Any) -> Any:
        return {"parts": [a[0], a[1]], "shape": a.shape, "sum": float(a.sum())}

    result = split(dlx.from_dlpack(X))
    assert [type(part) for part in result["parts"]] == [dlx.Tensor] * 2
    assert result["shape"] == (2, 3)
    assert result["sum"] == 15


def test_named_tuples_of_the_framework_keep_their_type() -> None:
    svd = dlx.bridge(np.ndarray)(np.linalg.svd)
    result: Any = svd(dlx.from_dlpack(X), full_matrices=False)
    u, s, vh = result
    assert type(result).__name__ == "SVDResult"
    assert type(u) is type(s) is type(vh) is dlx.Tensor


def test_scalars_of_numpy_stay_what_they_are() -> None:
    total = dlx.bridge(np.ndarray)(np.sum)(dlx.from_dlpack(X))
    assert type(total) is np.float32


# Lifetimes.


def test_a_result_keeps_the_memory_of_an_argument_alive() -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def tail(a: Any) -> Any:
        return a[1:]

    x = torch.arange(1000.0)
    result = tail(x)
    del x
    gc.collect()
    torch.full((1000,), -1.0)
    assert result.tolist() == list(range(1, 1000))


@pytest.mark.parametrize("way", ["short", "keyword", "container", "out"])
def test_no_argument_outlives_the_call(way: str) -> None:
    class Memory(np.ndarray):
        pass

    @dlx.bridge(dlx.Tensor)
    def look(a: Any, *, b: Any = None, out: Any = None) -> Any:
        return out

    memory = X.copy().view(Memory)
    look(memory)
    alive = weakref.ref(memory)
    match way:
        case "short":
            look(memory)
        case "keyword":
            look(1, b=memory)
        case "container":
            look([{"a": memory}])
        case "out":
            look(1, out=memory)
    del memory
    assert alive() is None


def test_arguments_are_let_go_when_the_call_fails() -> None:
    class Memory(np.ndarray):
        pass

    @dlx.bridge(dlx.Tensor)
    def fail(a: Any) -> None:
        raise ValueError("mine")

    memory = X.copy().view(Memory)
    alive = weakref.ref(memory)
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            fail(memory)
    del memory
    gc.collect()
    assert alive() is None


def test_a_bridged_function_and_the_classes_it_has_seen_can_die() -> None:
    """Also where they refer to each other."""

    def make() -> list[weakref.ref[Any]]:
        class Own(dlx.ExchangeMixin, exchange="data"):
            def __init__(self, data: Any) -> None:
                self.data = data

            @dlx.bridge(np.ndarray)
            def add(self, other: Any) -> Any:
                return np.add(self.data, other)

        for _ in range(2):
            assert type(Own(X).add(Own(X))) is Own
        return [weakref.ref(Own), weakref.ref(Own.add)]

    alive = make()
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_many_calls_leave_nothing_behind() -> None:
    torch = requires("torch")
    x = torch.from_numpy(X)

    @dlx.bridge(np.ndarray)
    def call(a: Any, b: Any = None, *, out: Any = None) -> Any:
        return np.add(a, 1, out=out)

    def rounds() -> int:
        for _ in range(200):
            call(x)
            call(x, [x])
            call(x, out=x)
            with pytest.raises(BufferError):
                call(torch.ones(2, requires_grad=True))
        gc.collect()
        return len(gc.get_objects())

    rounds()
    before = rounds()
    assert rounds() <= before + 5
