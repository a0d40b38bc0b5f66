"""`dlx.bridge`: what functions get, and what they give back."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires


@dataclass
class Wrapped(dlx.ExchangeMixin, exchange="data"):
    """An array class of our own; as a tensor, no container."""

    data: Any


MAKE: dict[str, Callable[..., Any]] = {
    "numpy": np.asarray,
    "torch": lambda x: requires("torch").from_numpy(np.asarray(x)),
    "jax": lambda x: requires("jax.numpy").asarray(x),
    "dlx": lambda x: dlx.from_dlpack(np.asarray(x)),
    "mixin": lambda x: Wrapped(np.asarray(x)),
}
X, Y = np.arange(6, dtype="float32").reshape(2, 3), np.ones((2, 3), "float32")


def read(tensor: Any) -> Any:
    return dlx.from_dlpack(tensor).numpy().tolist()


@dlx.bridge(np.ndarray)
def add(a: Any, b: Any, *, axis: int = 0) -> Any:
    assert type(a) is np.ndarray
    assert type(b) is np.ndarray
    return np.flip(a, axis) + b


@pytest.mark.parametrize("kind", MAKE)
def test_the_result_is_of_the_kind_of_the_arguments(kind: str) -> None:
    a, b = MAKE[kind](X), MAKE[kind](Y)
    for _ in range(2):  # when the type is new, and when it is known
        result = add(a, b, axis=1)
        assert type(result) is type(a)
        assert read(result) == (X[:, ::-1] + Y).tolist()


@pytest.mark.parametrize("second", MAKE)
@pytest.mark.parametrize("first", MAKE)
def test_the_first_tensor_says_of_which_kind_the_result_is(
    first: str, second: str
) -> None:
    a, b = MAKE[first](X), MAKE[second](Y)
    for result in add(a, b), add(a, b=b), add(b=a, a=b):
        assert type(result) is type(a)


def test_positional_arguments_come_before_keywords() -> None:
    @dlx.bridge(np.ndarray)
    def take(*args: Any, **kwargs: Any) -> Any:
        return Y

    tensor = dlx.from_dlpack(X)
    assert type(take(1, X, x=tensor)) is np.ndarray
    assert type(take(1, tensor, x=X)) is dlx.Tensor
    assert type(take(1, y=tensor, x=X)) is dlx.Tensor


@pytest.mark.parametrize("to", ["torch", "jax"])
@pytest.mark.parametrize("kind", MAKE)
def test_the_function_may_be_of_any_framework(kind: str, to: str) -> None:
    seen = type(MAKE[to](X))

    @dlx.bridge(seen)
    def double(a: Any) -> Any:
        assert type(a) is seen
        return a + a

    result = double(MAKE[kind](X))
    if kind == "dlx":  # the memory of JAX is held in a class that is collected
        assert isinstance(result, dlx.Tensor)
    else:
        assert type(result) is type(MAKE[kind](X))
    assert read(result) == (X + X).tolist()


@pytest.mark.parametrize("kind", MAKE)
def test_a_module_names_a_framework_too(kind: str) -> None:
    @dlx.bridge(np, result=requires("torch"))
    def add(a: Any, b: Any) -> Any:
        assert type(a) is np.ndarray
        return np.add(a, b)

    for _ in range(2):
        result = add(MAKE[kind](X), MAKE[kind](Y))
        assert type(result) is requires("torch").Tensor
        assert read(result) == (X + Y).tolist()


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("result", [np.ndarray, dlx.Tensor, Wrapped])
def test_the_kind_of_the_result_can_be_named(result: Any, kind: str) -> None:
    @dlx.bridge(np.ndarray, result=result)
    def same(a: Any) -> Any:
        return a

    assert type(same(MAKE[kind](X))) is result


def test_without_a_tensor_argument_the_result_is_left_alone() -> None:
    @dlx.bridge(np.ndarray)
    def ones(count: int, kind: str = "f4", **rest: Any) -> Any:
        return np.ones(count, kind)

    assert type(ones(3, "f8", config=object())) is np.ndarray


def test_without_a_tensor_argument_the_result_is_of_the_named_kind() -> None:
    @dlx.bridge(np.ndarray, result=dlx.Tensor)
    def ones(count: int) -> Any:
        return np.ones(count)

    assert type(ones(3)) is dlx.Tensor


@pytest.mark.parametrize(
    "value", [None, True, 3, 2.5, 1j, "x", b"x", object(), slice(2), int, np.float64(1)]
)
def test_what_is_no_tensor_passes_through(value: object) -> None:
    @dlx.bridge(np.ndarray)
    def second(a: Any, x: object, *, y: object) -> Any:
        assert x is value
        assert y is value
        return x

    assert second(dlx.from_dlpack(X), value, y=value) is value


def test_memory_is_shared_in_and_out() -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def tail(a: Any) -> Any:
        a[0] = 7
        return a[1:]

    x = torch.arange(4.0)
    assert tail(x).data_ptr() == x.data_ptr() + 4
    assert x[0] == 7


@pytest.mark.parametrize("to", [np.ndarray, np])
def test_an_instance_of_the_kind_is_what_the_function_gets(to: Any) -> None:
    """Subclasses, masked arrays too: for them, nothing is bridged."""

    @dlx.bridge(to)
    def same(a: Any) -> Any:
        return a

    own: Any = X.view(type("Own", (np.ndarray,), {}))
    for array in X, own, np.ma.array([1, 2], mask=[False, True]):
        for _ in range(2):
            assert same(array) is array


class Unlike(np.ndarray[Any, Any]):
    """An array that is none of `Like`."""


class Like(np.ndarray[Any, Any]):
    """What a function is written for."""


@pytest.mark.parametrize("bases", [(Unlike, Like), (Like, Unlike)])
def test_a_class_may_get_other_bases(bases: tuple[type[Any], type[Any]]) -> None:
    """docs/bridge.md: what is of the type passes, all else is converted."""
    kinds: list[type[Any]] = []

    @dlx.bridge(Like)
    def look(x: Any) -> None:
        kinds.append(type(x))

    changing: Any = type("Changing", (bases[0],), {})
    x = np.arange(3).view(changing)
    for base in bases:
        changing.__bases__ = (base,)
        look(x)
    assert kinds == [changing if base is Like else Like for base in bases]


def test_results_follow_a_class_that_gets_other_bases() -> None:
    """docs/bridge.md: results become what the first tensor argument is, as it is."""

    class Own(np.ndarray[Any, Any]):
        def __dlpack__(self, **keywords: Any) -> Any:
            return super().__dlpack__(**keywords)

    plain = dlx.bridge(Like)(np.asarray)
    changing: Any = type("Changing", (Own,), {})
    x = np.arange(3).view(changing)
    assert type(plain(x)) is Own
    changing.__bases__ = (Unlike,)
    assert type(plain(x)) is np.ndarray


def test_a_view_of_a_kind_gives_results_of_the_kind_itself() -> None:
    torch = requires("torch")
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    result = add(parameter, parameter)
    assert type(result) is torch.Tensor


def test_a_tensor_that_records_gradients_is_refused_and_the_argument_named() -> None:
    torch = requires("torch")
    x = torch.ones(2, 3)
    with pytest.raises(BufferError, match=r"pass tensor\.detach\(\)") as refused:
        add(x, x.clone().requires_grad_())
    assert refused.value.__notes__ == ["argument b of add"]


def test_arguments_and_results_are_detached_on_request() -> None:
    """docs/bridge.md, Arguments: at once, and in containers."""
    torch = requires("torch")
    weights = torch.ones(3, requires_grad=True)

    @dlx.bridge(np.ndarray, detach=True)
    def double(a: Any, *rest: Any) -> Any:
        return a * 2

    for _ in range(2):
        assert double(weights).tolist() == [2, 2, 2]
        assert double(weights, [weights, {"x": weights}]).tolist() == [2, 2, 2]
        assert not double(weights).requires_grad

    @dlx.bridge(torch, detach=True)
    def predict(a: Any) -> Any:
        assert a.tolist() == [1, 1, 1]
        return weights * a, {"loss": (weights * a).sum()}

    one = predict(np.ones(3, "f4"))
    assert one[0].tolist() == [1, 1, 1]
    assert type(one[1]["loss"]) is np.ndarray
    # A caller that works with torch keeps its gradients.
    assert predict(torch.ones(3))[0].requires_grad
    assert dlx.bridge(torch, detach=True)(torch.mul)(
        weights.detach().numpy(), weights
    ).tolist() == [1, 1, 1]


def test_an_out_is_not_detached() -> None:
    """docs/bridge.md, Arguments: a graph would not know that it was written."""
    torch = requires("torch")
    out = torch.ones(3, requires_grad=True)
    add = dlx.bridge(np.ndarray, detach=True)(np.add)
    with pytest.raises(BufferError, match="requires grad"):
        add(np.ones(3), 1, out=out)
    assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("args", "kwargs", "name"),
    [
        ((1, True), {}, "b"),
        ((True,), {}, "a"),
        ((1, 2, 3, True), {}, "3"),
        ((1,), {"b": True}, "b"),
        ((1,), {"x": True}, "x"),
        ((1, [{"x": True}]), {}, "b[0]['x']"),
    ],
)
def test_what_is_refused_is_named(args: Any, kwargs: Any, name: str) -> None:
    class Refuses:
        def __dlpack__(self, **keywords: Any) -> Any:
            raise ZeroDivisionError("of the producer")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    @dlx.bridge(np.ndarray)
    def take(a: Any, b: Any = None, *more: Any, **kwargs: Any) -> None: ...

    def put(x: Any) -> Any:
        if isinstance(x, list):
            return [{"x": Refuses()}]
        return Refuses() if x is True else x

    with pytest.raises(ZeroDivisionError, match="of the producer") as raised:
        take(*map(put, args), **{name: put(x) for name, x in kwargs.items()})
    note = f"argument {name} of {take.__qualname__}"
    assert raised.value.__notes__ == [note]


def test_an_exception_of_the_function_passes_as_it_is() -> None:
    error = ValueError("mine")

    @dlx.bridge(np.ndarray)
    def fail(a: Any) -> None:
        raise error

    with pytest.raises(ValueError, match="mine") as raised:
        fail(dlx.from_dlpack(X))
    assert raised.value is error
    assert error.__cause__ is error.__context__ is None
    assert not hasattr(error, "__notes__")
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert (last.name, last.line) == ("fail", "raise error")


def test_a_result_that_the_callers_library_lacks_is_advised_to_have_a_type() -> None:
    """JAX narrows float64, which `convert` refuses; the advice works."""
    jnp = requires("jax").numpy

    def mean(x: Any) -> Any:
        return np.float64(x).mean(keepdims=True)

    with pytest.raises(BufferError) as refused:
        dlx.bridge(np.ndarray)(mean)(jnp.ones(3))
    assert refused.value.__notes__[-1].startswith("result= of dlx.bridge names another")
    assert dlx.bridge(np.ndarray, result=np.ndarray)(mean)(jnp.ones(3)).dtype == "f8"
