"""Bridged functions, and the slow path of their calls."""

from __future__ import annotations

import functools
import inspect
from operator import is_
from sys import maxsize
from types import MethodType

from . import _core
from ._core import convert, placed
from ._tree import held_by, map_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

__all__ = ["bridged"]

# An importable class has one of these, itself or from a base.
_EXPORTS = {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__", "__dlpack__"}


class _Kind(_core.Kind):
    """A kind of tensor, and the conversion to it."""

    def __new__(cls, to: type, foreign: bool = False) -> Self:
        return super().__new__(cls, to, _core.Types(), foreign)

    def leaf(self, x: Any, copy: bool | None = None) -> Any:
        """Convert ``x`` if it is a tensor of another kind."""
        # Types of other objects are not remembered: they may become tensor types.
        if not _core.is_tensor(x):
            return x
        self.known.add(type(x), self.is_foreign(type(x)))
        return x if isinstance(x, self.to) else convert(x, self.to, copy=copy)

    def is_foreign(self, cls: type) -> bool:
        """Whether instances of ``cls`` are converted, judged by its bases alone."""
        # By identity: a metaclass can override equality.
        return all(base is not self.to for base in cls.__mro__)

    def give(self, value: Any) -> Any:
        """Convert the result of a function."""
        return map_tree(self.leaf, value)


class _Outs:
    """The ``out`` tensors of one call, and the caller's objects behind them."""

    def __init__(self) -> None:
        # By the id of the object that the function sees, which the values keep alive.
        self.seen: dict[int, tuple[Any, Any]] = {}
        # Objects passed in place of the caller's own, and their state before the call.
        self.tensors: list[tuple[Any, Any]] = []
        self.containers: list[tuple[Any, list[Any]]] = []

    def take(self, into: _Kind, x: Any) -> Any:
        """Convert a tensor without copying it."""
        own = x if isinstance(x, into.to) else _core.written(x)
        try:
            new = into.leaf(own, copy=False)
        except _core.CopyRefused as refused:
            raise _core.CopyRefused(
                f"out is written in place, where its owner looks: {refused}"
            ) from refused
        if new is not x:
            now = placed(new)
            if now[:2] != placed(x)[:2]:
                raise _core.CopyRefused(
                    "out is written in place, where its owner looks: "
                    f"{type(x).__qualname__} exports other memory each time"
                )
            self.tensors.append((new, now))
        self.seen[id(new)] = (new, x)
        return new

    def note(self, new: Any, x: Any, rebuilt: list[Any]) -> None:
        """Record that ``new``, with its ``rebuilt`` containers, is passed for ``x``."""
        self.seen[id(new)] = (new, x)
        self.containers += [(container, held_by(container)) for container in rebuilt]

    def written(self) -> None:
        """Let the owners know that the function may have written to their tensors."""
        for new, x in self.seen.values():
            # The function's own library knows what it does to its own tensors.
            if new is not x:
                _core.increment_version(x)

    def check(self) -> None:
        """Raise if the function replaced memory, so that the caller sees no result."""
        for new, before in self.tensors:
            try:
                now = placed(new)
            except Exception as error:
                why = str(error).partition("\n")[0]  # C++ libraries append a backtrace
                raise _elsewhere(f"made it one that cannot be read: {why}") from error
            if now != before:
                raise _elsewhere(f"gave it {_described(now)}, not {_described(before)}")
        for new, held in self.containers:
            now_held = held_by(new)
            if len(now_held) != len(held) or not all(map(is_, now_held, held)):
                raise _elsewhere("put something else into it")

    def give(self, kind: _Kind | None, value: Any) -> Any:
        """Convert the result, with the caller's own objects in place of ``out``."""
        if (own := self.seen.get(id(value))) is not None:
            return own[1]

        def leaf(x: Any) -> Any:
            if (own := self.seen.get(id(x))) is not None:
                return own[1]
            return x if kind is None else kind.leaf(x)

        return map_tree(leaf, value)


def _elsewhere(what: str) -> BufferError:
    return BufferError(
        "out is written in place, where its owner looks, but the function "
        f"{what}; assign to its elements, out[...] = value, or return the result"
    )


def _described(placed: tuple[int, Any, Any, str, str]) -> str:
    address, shape, strides, dtype, device = placed
    return f"{dtype} {shape} with strides {strides} at {address:#x} on {device}"


class _Arguments:
    """The slow path of a bridged function's calls."""

    def __init__(self, function: Any, to: type, result: type | None) -> None:
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):  # some builtin functions have no signature
            parameters = []
        names = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        self.function = function
        self.names = names  # of the positional parameters
        self.receivers = int(names[:1] in (["self"], ["cls"]))
        self.out = names.index("out") if "out" in names else maxsize
        self.into = _Kind(to)
        self.result = None if result is None else _Kind(result)
        self.seen = _core.Types()

    def finish(
        self,
        taken: list[Any],
        kind: _Kind | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call the function; ``taken`` holds its first arguments, converted."""
        outs = _Outs()
        kind = self.take(taken, kind, args, kwargs, outs)
        try:
            value = self.function(*taken, **kwargs)
        finally:
            outs.written()
        return self.give(kind, outs, value)

    async def call_coroutine(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a coroutine function."""
        taken = [*args[: self.receivers]]
        outs = _Outs()
        kind = self.take(taken, self.result, args, kwargs, outs)
        try:
            value = await self.function(*taken, **kwargs)
        finally:
            outs.written()
        return self.give(kind, outs, value)

    def take(
        self,
        taken: list[Any],
        kind: _Kind | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: _Outs,
    ) -> _Kind | None:
        """Convert the other arguments in place; return the kind of the results."""
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
        return kind

    def give(self, kind: _Kind | None, outs: _Outs, value: Any) -> Any:
        """Check the ``out`` tensors, and convert the result."""
        if outs.seen:
            try:
                outs.check()
            except BufferError as error:
                self.note(error, "out")
                raise
            return outs.give(kind, value)
        return value if kind is None else kind.give(value)

    def argument(self, x: Any, outs: _Outs | None) -> tuple[Any, _Kind | None]:
        """Convert one argument; return it and the kind of the first tensor in it."""
        first = None

        def leaf(x: Any) -> Any:
            nonlocal first
            if not _core.is_tensor(x):
                return x
            new = self.into.leaf(x) if outs is None else outs.take(self.into, x)
            first = first or self.kind_of(type(x))
            return new

        rebuilt: list[Any] = []
        new = map_tree(leaf, x, rebuilt)
        if outs is not None:
            outs.note(new, x, rebuilt)
        return new, first

    def kind_of(self, cls: type) -> _Kind:
        """Return the kind of the results for an argument of type ``cls``."""
        kind: _Kind | None = self.seen.get(cls)
        if kind is None:
            # The base that exports, not a view or parameter class derived from it.
            exporting = (
                base for base in cls.__mro__ if not _EXPORTS.isdisjoint(vars(base))
            )
            kind = _Kind(next(exporting, cls), self.into.is_foreign(cls))
            self.seen.add(cls, kind)
        return kind

    def note(self, error: BaseException, at: int | str) -> None:
        """Add a note to ``error`` that names the argument."""
        if isinstance(at, int) and at < len(self.names):
            at = self.names[at]
        name = getattr(self.function, "__qualname__", repr(self.function))
        error.add_note(f"argument {at} of {name}")


class _Bridged(_core.Bridged):
    """The bridged function, with the attributes of the original."""

    def __getattr__(self, name: str) -> Any:
        # From 3.14 on, `update_wrapper` copies no annotations: they are lazy.
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
        return str(self.__qualname__)  # by reference, like functions


def bridged(function: Any, to: type, result: type | None) -> Any:
    """Bridge a callable, a class method or a static method."""
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(bridged(function.__func__, to, result))
    if not callable(function):
        raise TypeError(f"{function!r} cannot be bridged; expected a callable")
    if _is(inspect.isgeneratorfunction, function) or _is(
        inspect.isasyncgenfunction, function
    ):
        raise TypeError(
            f"{function!r} is a generator function, and what it yields is not "
            "converted; expected a function that returns its result"
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
    """Whether ``kind`` holds for ``function`` or its ``__call__`` method."""
    return kind(function) or kind(function.__call__)
