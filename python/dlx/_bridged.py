"""Bridged functions, and the slow path of their calls."""

from __future__ import annotations

import functools
import inspect
from numbers import Number
from operator import is_
from sys import maxsize
from types import MethodType

from . import _core
from ._core import convert, placed
from ._mixin import ExchangeMixin
from ._tree import held_by, map_tree, path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from ._tree import Way

__all__ = ["bridged"]

# An importable class has one of these, itself or from a base.
_EXPORTS = {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__", "__dlpack__"}


class _Kind(_core.Kind):
    """A kind of tensor, and the conversion to it."""

    def __new__(cls, to: type, foreign: bool = False) -> Self:
        default = ExchangeMixin.__dlx_like__
        likes = getattr(to, "__dlx_like__", default) is not default
        return super().__new__(cls, to, _core.Types(), foreign, likes)

    def leaf(self, x: Any, copy: bool | None = None, like: Any = None) -> Any:
        """Convert ``x`` if it is a tensor of another kind, if need be ``like`` one."""
        # Types of other objects are not remembered: they may become tensor types.
        if not _core.is_tensor(x):
            return x
        self.known.add(type(x), self.is_foreign(type(x)))
        if isinstance(x, self.to):
            return x
        return convert(x, self.to if like is None else like, copy=copy)

    def is_foreign(self, cls: type) -> bool:
        """Whether instances of ``cls`` are converted, judged by its bases alone."""
        # By identity: a metaclass can override equality.
        return all(base is not self.to for base in cls.__mro__)


class _Results:
    """The kind of the results of one call, and the argument that they are like."""

    def __init__(self, kind: _Kind | None, like: Any = None) -> None:
        self.kind = kind
        self.like = like

    def see(self, x: Any, kind: _Kind) -> None:
        """Take an argument into account; the first one counts."""
        if self.kind is None:
            self.kind = kind
        if kind.likes and self.like is None and kind.to is self.kind.to:
            self.like = x


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

    def given(self, x: Any) -> Any:
        """Return the caller's own object for ``x``, or None."""
        own = self.seen.get(id(x))
        return None if own is None else own[1]


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

    def __init__(
        self, function: Any, to: type, result: type | None, refuses_lists: bool
    ) -> None:
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):  # some builtin functions have no signature
            parameters = []
        names = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        self.function = function
        self.refuses_lists = refuses_lists
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
        like: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call the function; ``taken`` holds its first arguments, converted."""
        results, outs = _Results(kind, like), _Outs()
        self.take(taken, results, args, kwargs, outs)
        try:
            value = self.function(*taken, **kwargs)
        finally:
            outs.written()
        return self.give(results, outs, value)

    async def call_coroutine(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a coroutine function."""
        taken = [*args[: self.receivers]]
        results, outs = _Results(self.result), _Outs()
        self.take(taken, results, args, kwargs, outs)
        try:
            value = await self.function(*taken, **kwargs)
        finally:
            outs.written()
        return self.give(results, outs, value)

    def take(
        self,
        taken: list[Any],
        results: _Results,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: _Outs,
    ) -> None:
        """Convert the other arguments in place."""
        for position, x in enumerate(args[len(taken) :], len(taken)):
            written = outs if position == self.out else None
            taken.append(self.argument(position, x, written, results))
        for name, x in kwargs.items():
            written = outs if name == "out" else None
            kwargs[name] = self.argument(name, x, written, results)

    def give(self, results: _Results, outs: _Outs, value: Any) -> Any:
        """Check the ``out`` tensors, and convert the result."""
        if outs.seen:
            try:
                outs.check()
            except BufferError as error:
                self.note(error, "out")
                raise
            if (own := outs.given(value)) is not None:
                return own
        elif results.kind is None:
            return value
        return self.convert_result(results.kind, results.like, value, outs)

    def convert_result(
        self, kind: _Kind | None, like: Any, value: Any, outs: _Outs | None = None
    ) -> Any:
        """Convert the result, with the caller's own objects in place of ``outs``."""

        def leaf(x: Any) -> Any:
            if outs is not None and (own := outs.given(x)) is not None:
                return own
            return x if kind is None else kind.leaf(x, like=like)

        way: Way = []
        try:
            return map_tree(leaf, value, way=way)
        except Exception as error:
            self.note(error, None, path(way))
            raise

    def argument(
        self, at: int | str, x: Any, outs: _Outs | None, results: _Results
    ) -> Any:
        """Convert the argument at a position, or with a name."""

        def leaf(x: Any) -> Any:
            if not _core.is_tensor(x):
                return x
            new = self.into.leaf(x) if outs is None else outs.take(self.into, x)
            results.see(x, self.kind_of(type(x)))
            return new

        way: Way = []
        rebuilt: list[Any] = []
        try:
            if self.refuses_lists and isinstance(x, list) and _is_of_numbers(x):
                raise TypeError(
                    "a list of numbers is no tensor, and lists='refuse'; "
                    "pass an array of them"
                )
            new = map_tree(leaf, x, rebuilt, way)
        except Exception as error:
            self.note(error, at, path(way))
            raise
        if outs is not None:
            outs.note(new, x, rebuilt)
        return new

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

    def note(self, error: BaseException, at: int | str | None, where: str = "") -> None:
        """Add a note to ``error`` that names the argument, or else the result."""
        if isinstance(at, int) and at < len(self.names):
            at = self.names[at]
        what = "result" if at is None else f"argument {at}"
        name = getattr(self.function, "__qualname__", repr(self.function))
        error.add_note(f"{what}{where} of {name}")


def _is_of_numbers(x: list[Any]) -> bool:
    """Whether a list, with the lists in it, holds numbers and nothing else."""
    lists, seen, found = [x], {id(x)}, False
    while lists:
        for item in list.__iter__(lists.pop()):
            if isinstance(item, list):
                if id(item) not in seen:
                    seen.add(id(item))
                    lists.append(item)
            elif isinstance(item, Number):
                found = True
            else:
                return False
    return found


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


def bridged(function: Any, to: type, result: type | None, refuses_lists: bool) -> Any:
    """Bridge a callable, a class method or a static method."""
    if isinstance(function, (classmethod, staticmethod)):
        inner = bridged(function.__func__, to, result, refuses_lists)
        return type(function)(inner)
    if not callable(function):
        raise TypeError(f"{function!r} cannot be bridged; expected a callable")
    if _is(inspect.isgeneratorfunction, function) or _is(
        inspect.isasyncgenfunction, function
    ):
        raise TypeError(
            f"{function!r} is a generator function, and what it yields is not "
            "converted; expected a function that returns its result"
        )
    arguments = _Arguments(function, to, result, refuses_lists)
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
