"""What ``dlx.bridge`` makes of a function."""

from __future__ import annotations

import functools
import inspect
from sys import maxsize
from types import MethodType

from . import _core
from ._core import convert
from ._tree import map_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

__all__ = ["bridged"]

# What most arguments are that are no tensors.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, slice)

# What a class that can be read has, itself or from its bases.
_EXPORTS = {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__", "__dlpack__"}


class _Kind(_core.Kind):
    """One kind of tensor, and how others become it."""

    def __new__(cls, to: type, foreign: bool = False) -> Self:
        # Types of what is no tensor are not remembered: they may become such later.
        return super().__new__(cls, to, dict.fromkeys(_PLAIN, False), foreign)

    def leaf(self, x: Any, copy: bool | None = None) -> Any:
        """Convert ``x`` if it is a tensor of another kind."""
        if not _core.is_tensor(x):
            return x
        new = x
        if not isinstance(x, self.to):
            new = convert(x, self.to, copy=copy)
        self.known[type(x)] = new is not x
        return new

    def give(self, value: Any) -> Any:
        """Convert what a function returned."""
        return map_tree(self.leaf, value)


class _Outs:
    """What one call writes in place, and whose objects these are."""

    def __init__(self) -> None:
        # By the address of what the function sees, which the values keep alive.
        self.seen: dict[int, tuple[Any, Any]] = {}

    def take(self, into: _Kind, x: Any) -> Any:
        """Convert a tensor without copying it."""
        try:
            new = into.leaf(x, copy=False)
        except _core.CopyRefused as refused:
            raise _core.CopyRefused(
                f"out is written in place, where its owner looks: {refused}"
            ) from refused
        self.note(new, x)
        return new

    def note(self, new: Any, x: Any) -> None:
        """Remember that the function sees ``new`` in place of ``x``."""
        self.seen[id(new)] = (new, x)

    def give(self, kind: _Kind | None, value: Any) -> Any:
        """Convert what a function returned, and give back what is the caller's own."""
        if (own := self.seen.get(id(value))) is not None:
            return own[1]

        def leaf(x: Any) -> Any:
            if (own := self.seen.get(id(x))) is not None:
                return own[1]
            return x if kind is None else kind.leaf(x)

        return map_tree(leaf, value)


class _Arguments:
    """How the arguments of a function are converted that need a closer look."""

    def __init__(self, function: Any, to: type, result: type | None) -> None:
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):  # not every builtin function tells it
            parameters = []
        names = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        self.function = function
        self.names = names  # of the positional parameters
        self.receivers = int(names[:1] in (["self"], ["cls"]))
        self.out = names.index("out") if "out" in names else maxsize
        self.into = _Kind(to)
        self.result = None if result is None else _Kind(result)
        self.seen: dict[type, _Kind | None] = dict.fromkeys(_PLAIN)

    def finish(
        self,
        taken: list[Any],
        kind: _Kind | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call the function, of whose arguments the first are ``taken`` already."""
        give = self.take(taken, kind, args, kwargs)
        return give(self.function(*taken, **kwargs))

    async def call_coroutine(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a coroutine function."""
        taken = [*args[: self.receivers]]
        give = self.take(taken, self.result, args, kwargs)
        return give(await self.function(*taken, **kwargs))

    def take(
        self,
        taken: list[Any],
        kind: _Kind | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Callable[[Any], Any]:
        """Convert the other arguments in place, and give what converts the result."""
        outs = _Outs()
        name: int | str = 0
        try:
            for name, x in enumerate(args[len(taken) :], len(taken)):
                new, found = self.argument(x, outs if name == self.out else None)
                taken.append(new)
                kind = kind or found
            for name, x in kwargs.items():
                new, found = self.argument(x, outs if name == "out" else None)
                kwargs[name] = new
                kind = kind or found
        except Exception as error:
            self.note(error, name)
            raise
        if outs.seen:
            return functools.partial(outs.give, kind)
        return _as_it_is if kind is None else kind.give

    def argument(self, x: Any, outs: _Outs | None) -> tuple[Any, _Kind | None]:
        """Convert one argument, and tell the kind of the first tensor in it."""
        first = None

        def leaf(x: Any) -> Any:
            nonlocal first
            if not _core.is_tensor(x):
                return x
            new = self.into.leaf(x) if outs is None else outs.take(self.into, x)
            first = first or self.kind_of(type(x))
            return new

        new = map_tree(leaf, x)
        if outs is not None:
            outs.note(new, x)
        return new, first

    def kind_of(self, cls: type) -> _Kind:
        """Tell what results become for ``cls``, of which an argument was."""
        kind = self.seen.get(cls)
        if kind is None:
            # Not views, parameters and the like, but what these are of.
            exporting = (
                base for base in cls.__mro__ if not _EXPORTS.isdisjoint(vars(base))
            )
            kind = _Kind(next(exporting, cls), self.into.known[cls])
            self.seen[cls] = kind
        return kind

    def note(self, error: BaseException, at: int | str) -> None:
        """Add to an error which argument it is about."""
        if isinstance(at, int) and at < len(self.names):
            at = self.names[at]
        name = getattr(self.function, "__qualname__", repr(self.function))
        error.add_note(f"argument {at} of {name}")


class _Bridged(_core.Bridged):
    """The function that others see, with the attributes of the bridged one."""

    def __getattr__(self, name: str) -> Any:
        # From 3.14 on `update_wrapper` leaves them to be made when they are asked for.
        if name == "__annotations__":
            return self.__wrapped__.__annotations__
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}",
            name=name,
            obj=self,
        )

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return str(self.__qualname__)  # by reference, as functions


def _as_it_is(value: Any) -> Any:
    return value


def bridged(function: Any, to: type, result: type | None) -> Any:
    """Bridge a callable, a class method or a static method."""
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(bridged(function.__func__, to, result))
    if not callable(function):
        raise TypeError(f"{function!r} cannot be bridged: a callable is accepted")
    if _is(inspect.isgeneratorfunction, function) or _is(
        inspect.isasyncgenfunction, function
    ):
        raise TypeError(
            f"{function!r} is a generator function, and what it yields is not "
            "converted: a function that returns its result is accepted"
        )
    arguments = _Arguments(function, to, result)
    if not _is(inspect.iscoroutinefunction, function):
        call = _Bridged(
            function,
            to,
            arguments.seen,
            arguments.result,
            arguments.receivers,
            arguments.out,
            arguments,
        )
        return functools.update_wrapper(call, function)

    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return await arguments.call_coroutine(args, kwargs)

    return coroutine


def _is(kind: Callable[[object], bool], function: Any) -> bool:
    """Whether ``function`` or the method that calls it is of this kind."""
    return kind(function) or kind(function.__call__)
