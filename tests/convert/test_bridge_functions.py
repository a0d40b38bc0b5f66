"""`dlx.bridge`: which functions can be bridged, and what stays of them."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import typing
import weakref
from collections.abc import Awaitable, Iterator
from typing import Any, assert_type

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

X, Y = np.arange(6, dtype="float32").reshape(2, 3), np.ones((2, 3), "float32")


def read(tensor: Any) -> Any:
    return dlx.from_dlpack(tensor).numpy().tolist()


def test_name_docstring_annotations_and_signature_are_kept() -> None:
    def scale(a: Any, /, factor: float = 2.0, *, axis: int = 0) -> Any:
        """Scale it."""

    bridged = dlx.bridge(np.ndarray)(scale)
    assert inspect.signature(bridged) == inspect.signature(scale)
    for name in "__name__", "__qualname__", "__doc__", "__module__", "__annotations__":
        assert getattr(bridged, name) == getattr(scale, name)
    assert bridged.__wrapped__ is scale
    assert typing.get_type_hints(bridged) == typing.get_type_hints(scale)
    assert inspect.isroutine(bridged)
    assert repr(bridged) == f"<dlx.bridge of {scale.__qualname__}>"
    with pytest.raises(TypeError, match=r"scale\(\) got an unexpected keyword"):
        bridged(X, size=3)


@dlx.bridge(np.ndarray)
def negative(a: Any) -> Any:
    return np.negative(a)


def test_a_bridged_function_is_pickled_and_copied_by_reference() -> None:
    assert pickle.loads(pickle.dumps(negative)) is negative
    assert copy.deepcopy(negative) is negative
    assert weakref.ref(negative)() is negative


def test_attributes_of_the_function_stay_its_own() -> None:
    """Whatever their names."""

    def double(a: Any) -> Any:
        return np.multiply(a, 2)

    names = {"out": 1, "seen": 2, "finish": 3, "result": 4, "names": 5, "into": 6}
    vars(double).update(names)
    bridged = dlx.bridge(np.ndarray)(double)
    assert vars(bridged).items() >= names.items()
    assert {name: getattr(bridged, name) for name in names} == names
    for given in dlx.from_dlpack(X), [dlx.from_dlpack(X)]:
        assert type(bridged(given)) is dlx.Tensor


def test_type_checkers_know_the_signature_and_let_any_tensor_in() -> None:
    @dlx.bridge(np.ndarray)
    def count(a: list[int], /, *, axis: int = 0) -> int:
        return len(a)

    assert_type(count([1], axis=1), int)
    assert_type(count((1,)), int)
    assert_type(count.__wrapped__([1]), int)

    class Counter:
        @dlx.bridge(np.ndarray)
        def count(self, a: list[int]) -> int:
            return len(a)

        @staticmethod
        @dlx.bridge(np.ndarray)
        def count_too(a: list[int]) -> int:
            return len(a)

    assert_type(Counter().count([1]), int)
    assert_type(Counter().count((1,)), int)
    assert_type(Counter.count_too([1]), int)


def test_methods_leave_their_receiver_alone() -> None:
    class Model(dlx.ExchangeMixin, exchange="weights"):
        def __init__(self) -> None:
            self.weights = Y

        @dlx.bridge(np.ndarray)
        def apply(self, x: Any) -> Any:
            assert type(self) is Model
            assert type(x) is np.ndarray
            return self.weights * x

        @classmethod
        @dlx.bridge(np.ndarray)
        def make(cls, x: Any) -> Any:
            assert cls is Model
            assert type(x) is np.ndarray
            return x

        @dlx.bridge(np.ndarray)
        @classmethod
        def make_too(cls, x: Any) -> Any:
            assert cls is Model
            assert type(x) is np.ndarray
            return x

        @staticmethod
        @dlx.bridge(np.ndarray)
        def negate(x: Any) -> Any:
            return np.negative(x)

        @dlx.bridge(np.ndarray)
        @staticmethod
        def negate_too(x: Any) -> Any:
            return np.negative(x)

    model, x = Model(), dlx.from_dlpack(X)
    assert type(model.apply(x)) is type(Model.apply(model, x=x)) is dlx.Tensor
    for call in model.make, Model.make_too, model.make_too:
        assert type(call(x)) is dlx.Tensor
    # A type checker binds a static method whose first parameter may be anything.
    negates: list[Any] = [model.negate, Model.negate_too, model.negate_too]
    for negate in negates:
        assert read(negate(x)) == (-X).tolist()


def test_a_bound_method_can_be_bridged() -> None:
    class Shift:
        by = 1

        def apply(self, x: Any) -> Any:
            return np.add(x, self.by)

    assert read(dlx.bridge(np.ndarray)(Shift().apply)(dlx.from_dlpack(X))) == read(
        X + 1
    )


def test_a_coroutine_function_stays_one() -> None:
    @dlx.bridge(np.ndarray)
    async def later(a: Any) -> Any:
        await asyncio.sleep(0)
        return np.negative(a)

    class Later:
        async def __call__(self, a: Any) -> Any:
            return np.negative(a)

    assert inspect.iscoroutinefunction(later)
    for call in later, dlx.bridge(np.ndarray)(Later()):
        pending: Awaitable[Any] = call(dlx.from_dlpack(X))

        async def main(pending: Awaitable[Any] = pending) -> Any:
            return await pending

        result = asyncio.run(main())
        assert type(result) is dlx.Tensor
        assert read(result) == (-X).tolist()


def test_builtin_functions_partials_and_decorated_functions_can_be_bridged() -> None:
    x = dlx.from_dlpack(X)
    ways: list[Any] = [
        np.negative,
        functools.partial(np.multiply, -1),
        np.vectorize(lambda v: -v),
    ]
    for function in ways:
        result = dlx.bridge(np.ndarray)(function)(x)
        assert type(result) is dlx.Tensor
        assert read(result) == (-X).tolist()


def test_a_bridged_function_can_be_bridged() -> None:
    torch = requires("torch")
    once = dlx.bridge(np.ndarray)(np.add)
    twice = dlx.bridge(torch.Tensor)(once)
    for bridged in once, twice:
        result = bridged(dlx.from_dlpack(X), dlx.from_dlpack(Y))
        assert type(result) is dlx.Tensor
        assert read(result) == (X + Y).tolist()


def _numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("bad", [np.add, b"np", 3, None, read])
def test_only_classes_and_modules_are_kinds(bad: Any) -> None:
    with pytest.raises(TypeError, match="expected a class, a module or"):
        dlx.bridge(bad)
    if bad is not None:
        with pytest.raises(TypeError, match="expected a class, a module or"):
            dlx.bridge(np.ndarray, result=bad)


def test_a_module_without_arrays_is_no_kind() -> None:
    with pytest.raises(TypeError, match="no array type"):
        dlx.bridge(copy)


def test_generator_functions_and_what_cannot_be_called_are_refused() -> None:
    with pytest.raises(TypeError, match="generator function"):
        dlx.bridge(np.ndarray)(_numbers)
    bad: Any = 3
    with pytest.raises(TypeError, match="expected a callable"):
        dlx.bridge(np.ndarray)(bad)


def test_a_framework_may_be_named() -> None:
    """docs/bridge.md: by the name to import it by, also for results."""
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        dlx.bridge("no_such_library")
    made = dlx.bridge("numpy", result="array_api_strict")(lambda x: x * 2)(np.ones(2))
    assert type(made).__module__.startswith("array_api_strict")


def test_a_bridged_function_has_attributes_as_the_function_has() -> None:
    """docs/bridge.md, Arguments."""

    def plain(a: Any) -> Any:
        """Add nothing."""
        return a

    plain.tag = "own"  # type: ignore[attr-defined]
    bridged: Any = dlx.bridge(np.ndarray)(plain)
    assert (bridged.tag, bridged.__doc__) == ("own", "Add nothing.")
    assert bridged.__module__ == __name__
    bridged.tag = "new"
    assert vars(bridged)["tag"] == "new"
    assert plain.tag == "own"  # type: ignore[attr-defined]
    del bridged.tag
    with pytest.raises(AttributeError, match="tag"):
        del bridged.tag
    assert not hasattr(bridged, "tag")
