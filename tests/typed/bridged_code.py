"""Bridged functions as users write them, for mypy and Pyright.

Nothing runs this. Expected errors are marked as in `user_code.py`.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, assert_type

import dlx
import jax
import numpy as np
import torch
from dlx.types import SupportsDLPack
from numpy.typing import ArrayLike, NDArray


class Array(dlx.ExchangeMixin, exchange="data"):
    """A class that exports its attribute."""

    def __init__(self, data: object) -> None:
        """Keep an array of any library."""
        self.data = data


x = np.ones((2, 3), "float32")
t = dlx.from_dlpack(x)
y = torch.Tensor()
q = Array(x)


# bridge: the function's own parameters, and tensors of any library in their place. What
# comes back is of the type of the first; of its own, it is what the function says.
@dlx.bridge(np)
def scale(x: NDArray[Any], by: float) -> NDArray[np.float64]:
    return x


assert_type(scale(x, 2.0), NDArray[np.float64])
assert_type(scale(x=x, by=2), NDArray[np.float64])
assert_type(scale(y, 2.0), torch.Tensor)
assert_type(scale(jax.Array(), 2.0), jax.Array)
assert_type(scale(t, 2.0), dlx.Tensor)
assert_type(scale(q, 2.0), Array)
assert_type(scale(q, by=2), Array)
assert_type(scale.__wrapped__(x, 2), NDArray[np.float64])
take: Callable[[Array, float], Array] = scale
scale(x, "no")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]
scale(q, "no")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]
scale(q, [2.0])  # type: ignore[list-item]  # pyright: ignore[reportCallIssue,reportArgumentType]
scale([2.0], 2)  # type: ignore[list-item]  # pyright: ignore[reportCallIssue,reportArgumentType]
scale(None, 2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]
scale(q, bye=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
scale(q)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
scale(q, 2, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
scale(x=q, by=2)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


@dlx.bridge(np)
def correlate(
    a: NDArray[Any],
    b: NDArray[Any] | None = None,
    mode: Literal["same", "valid"] = "same",
    window: Callable[[float], float] = abs,
    *,
    center: bool = False,
) -> NDArray[np.float64]:
    return np.correlate(a, a if b is None else b, mode)


assert_type(correlate(x), NDArray[np.float64])
assert_type(correlate(q), Array)
assert_type(correlate(q, None), Array)
assert_type(correlate(q, q, "valid", abs, center=True), Array)
assert_type(correlate(q, x), Array)
assert_type(correlate(x, q), NDArray[Any])
assert_type(correlate(t, q, center=True), dlx.Tensor)
correlate(q, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]
correlate(q, q, "full")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]
correlate(q, q, "same", 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]
correlate(q, q, center="no")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]


@dlx.bridge(torch)
def blend(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor
) -> torch.Tensor:
    return a


assert_type(blend(y, y, y, y), torch.Tensor)


@dlx.bridge(np)
def join(
    a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any]
) -> NDArray[Any]:
    return np.stack([a, b, c, d])


assert_type(join(q, q, q, x), Array)
assert_type(join(q, q, q, q), Any)
join(q, q, q, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]


@dlx.bridge(np)
def repeat(count: int, a: NDArray[Any], wrap: bool = False) -> NDArray[Any]:
    return np.repeat(a, count)


assert_type(repeat(3, x), NDArray[Any])
assert_type(repeat(3, q), Any)
assert_type(repeat(3, q, wrap=True), Any)
repeat("3", q)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]
repeat(3, q, "no")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]


@dlx.bridge(dlx.Tensor)
def fused(
    a: dlx.Tensor, b: dlx.Tensor | None = None, c: dlx.Tensor | None = None
) -> dlx.Tensor:
    return a


assert_type(fused(x), NDArray[Any])
assert_type(fused(x, x), NDArray[Any])
assert_type(fused(x, x, x), NDArray[Any])


# Parameters that take any tensors.
@dlx.bridge(np)
def asked(a: SupportsDLPack, by: float = 1) -> NDArray[np.float64]:
    return np.ones(3) * by


@dlx.bridge(np)
def alike(a: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(a, "float64")


@dlx.bridge(np, result=torch)
def anything(a: Any, b: SupportsDLPack, factor: float = 1) -> Any:
    return a + b


@dlx.bridge(np)
def unannotated(a, b=1):  # type: ignore[no-untyped-def]  # pyright: ignore[reportUnknownParameterType,reportMissingParameterType]
    """A function without annotations."""
    return a  # pyright: ignore[reportUnknownVariableType]


assert_type(asked(q), Array)
assert_type(asked(x, 2), NDArray[Any])
assert_type(alike(q), Array)
assert_type(alike([1.0]), NDArray[np.float64])
assert_type(anything(y, b=t, factor=3), Any)
anything(y, t, facter=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
assert_type(unannotated(q, 2), Any)


# Results that are no tensors, or that hold some.
@dlx.bridge(np)
def norm(a: NDArray[Any], order: int = 2) -> float:
    return float(np.linalg.norm(a, order))


@dlx.bridge(np)
def shape(a: NDArray[Any]) -> tuple[int, ...]:
    return a.shape


@dlx.bridge(np)
def save(a: NDArray[Any], path: str) -> None:
    """A function that returns nothing."""


@dlx.bridge(np)
def halves(a: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    return a[::2], a[1::2]


@dlx.bridge(np)
def found(a: NDArray[Any]) -> NDArray[Any] | None:
    return a if a.size else None


@dlx.bridge(np)
def mean(parts: list[NDArray[Any]], by: dict[str, NDArray[Any]]) -> NDArray[Any]:
    return parts[0]


assert_type(norm(q), float)
assert_type(norm(q, order=1), float)
assert_type(shape(q), tuple[int, ...])
done: None = save(q, "x.npy")
norm(q, "1")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]
assert_type(halves(x), tuple[NDArray[Any], NDArray[Any]])
assert_type(halves(q), Any)
assert_type(found(x), NDArray[Any] | None)
assert_type(found(q), Any)
assert_type(mean([x], {"x": x}), NDArray[Any])
assert_type(mean([q, q], {"x": q}), Any)
mean([q], 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]


# With result=, what it names, if that is a class or has one.
@dlx.bridge(np, result=torch)
def to_torch(a: NDArray[Any], by: float = 1) -> NDArray[Any]:
    return a


@dlx.bridge(np, result=Array)
def to_array(a: NDArray[Any], by: float = 1) -> NDArray[Any]:
    return a


@dlx.bridge(np, result=dlx)
def to_dlx(a: NDArray[Any]) -> NDArray[Any]:
    return a


@dlx.bridge(np, result=np)
def to_numpy(a: NDArray[Any]) -> NDArray[Any]:
    return a


@dlx.bridge(np, result=sys)
def to_no_library(a: NDArray[Any]) -> NDArray[Any]:
    return a


@dlx.bridge(np, result=import_module("torch"))
def to_some(a: NDArray[Any]) -> NDArray[Any]:
    return a


@dlx.bridge("numpy", result="torch")
def to_named(a: NDArray[Any]) -> NDArray[Any]:
    return a


@dlx.bridge(np, result=Array)
def to_arrays(a: NDArray[Any]) -> tuple[NDArray[Any], int]:
    return a, a.ndim


assert_type(to_torch(x), torch.Tensor)
assert_type(to_torch(q, by=2), torch.Tensor)
assert_type(to_array(x), Array)
assert_type(to_array(a=x), Array)
assert_type(to_array(t, 2), Array)
assert_type(to_dlx(q), dlx.Tensor)
assert_type(to_numpy(q), NDArray[Any])
assert_type(to_some(q), Any)
assert_type(to_no_library(q), Any)
assert_type(to_named(q), Any)
assert_type(to_arrays(x), Any)
assert_type(to_array.__wrapped__(x), NDArray[Any])
to_array(t, "no")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]
to_array(t, bye=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


@dlx.bridge(np)
def summed(a: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    sums: NDArray[Any] = np.add(a, a, out=out)
    return sums


assert_type(summed(x, out=x), NDArray[Any])
assert_type(summed(q, out=q), Any)
assert_type(summed(q), Array)


def make(cls: type[object], a: NDArray[Any]) -> NDArray[Any]:
    return a


class Model:
    """A class with bridged methods."""

    @dlx.bridge(np)
    def predict(self, a: NDArray[Any], *, scale: int = 1) -> NDArray[Any]:
        """A method."""
        return a * scale

    @classmethod
    @dlx.bridge(np)
    def load(cls, a: NDArray[Any], count: int = 1) -> NDArray[Any]:
        """A class method."""
        return a[:count]

    @staticmethod
    @dlx.bridge(np)
    def check(a: NDArray[Any] | None) -> int:
        """A static method."""
        return 0 if a is None else a.ndim

    @dlx.bridge(np)
    @staticmethod
    def clip(a: NDArray[Any]) -> NDArray[Any]:
        """A static method that is bridged after it has become one."""
        return a

    @staticmethod
    @dlx.bridge(np)
    def any_of(a: Any, count: int = 1) -> NDArray[Any]:
        """A static method, which might be a method but for its first parameter."""
        return np.asarray(a)[:count]

    clipped = dlx.bridge(np)(staticmethod(scale.__wrapped__))
    made = dlx.bridge(np)(classmethod(make))

    @dlx.bridge(np)
    async def later(self, a: NDArray[Any]) -> NDArray[Any]:
        """A coroutine function."""
        return a


assert_type(Model().predict(x, scale=2), NDArray[Any])
assert_type(Model().predict(q, scale=2), Array)
assert_type(Model.predict(Model(), q), Any)
assert_type(Model.load(q), Array)
assert_type(Model().load(x, 2), NDArray[Any])
assert_type(Model.check(q), int)
assert_type(Model().check(x), int)
assert_type(Model.clip(q), Array)
assert_type(Model.any_of(q), Array)
assert_type(Model.made(x), NDArray[Any])
clipped: Array = Model().clipped(q, 2)
assert_type(Model().any_of(q, 2), Array)
Model().predict(q, skale=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
Model.load(q, "2")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue,reportArgumentType]


def choose(library: Any) -> None:
    """Name a library whose type no checker knows."""
    to_any = dlx.bridge(library, result=library)(scale.__wrapped__)
    assert_type(to_any(q, 2), Any)
    to_any(q, bye=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def wait() -> None:
    assert_type(await Model().later(x), NDArray[Any])
    assert_type(await Model().later(q), Any)


product = dlx.bridge(np)(np.multiply)
assert_type(product(q, 2, out=q), Any)
dlx.bridge(np)(np.mean)(q).item()
