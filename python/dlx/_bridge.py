"""``dlx.bridge``: functions written for one framework take tensors of any."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import (
        Any,
        Concatenate,
        ParamSpec,
        Protocol,
        TypeAlias,
        TypeVar,
        overload,
    )

    Framework: TypeAlias = type[Any] | ModuleType
    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R = TypeVar("R")
    R_co = TypeVar("R_co", covariant=True)
    S = TypeVar("S")

    class Bridged(Protocol[P, R_co]):
        """A bridged function: its own signature, and that of any tensors."""

        __name__: str
        __qualname__: str

        @property
        def __wrapped__(self) -> Callable[P, R_co]: ...
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
        @overload
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        @overload
        def __get__(self, instance: None, owner: type, /) -> Bridged[P, R_co]: ...
        @overload
        def __get__(
            self: Bridged[Concatenate[S, Q], R_co],
            instance: S,
            owner: type | None = None,
            /,
        ) -> Bridged[Q, R_co]: ...

    class Bridge(Protocol):
        """What ``bridge`` returns."""

        @overload
        def __call__(
            self, function: classmethod[S, P, R], /
        ) -> classmethod[S, P, R]: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: staticmethod[P, R], /
        ) -> staticmethod[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Bridged[P, R]: ...


__all__ = ["bridge"]


def bridge(to: Framework, *, result: Framework | None = None) -> Bridge:
    """Let a function written for tensors ``to`` take tensors of any framework.

    ``to`` and ``result`` are what `dlx.convert` accepts. Tensors among the arguments,
    also in containers (see `dlx.convert_tree`), become ``to``; instances of it and what
    is no tensor pass through. Tensors in the result become what the first tensor
    argument is (positional ones first, then keywords, in order), or ``result``; without
    either they stay as they are.

    The argument ``out`` is written in place: its tensors are never copied, and where
    the function returns one of them, the caller gets its own object. ``BufferError``
    where the function has given an ``out`` other memory or another shape instead. The
    receiver of a method (a first parameter named ``self`` or ``cls``) is left alone.

    Coroutine functions stay such; class and static methods may be bridged before or
    after they become one. Raises ``TypeError`` for generator functions, and where
    ``to`` or ``result`` is neither a class nor a module. Errors of a conversion have a
    note that names the argument; the function's own exceptions pass through.
    """
    kind = _array_type(to)
    named = None if result is None else _array_type(result)

    def decorate(function: Any) -> Any:
        # Here, because it takes longer to import than the rest of dlx.
        from ._bridged import bridged

        return bridged(function, kind, named)

    return decorate


def _array_type(framework: Any) -> type:
    if isinstance(framework, type):
        return framework
    if not isinstance(framework, type(sys)):
        raise TypeError(
            f"{framework!r} is no kind of tensor: a class or a module is accepted, "
            "as in @dlx.bridge(np.ndarray)"
        )
    from ._provided import array_type

    return array_type(framework)
