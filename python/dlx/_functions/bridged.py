"""Bridged functions, and the slow path of their calls."""

from __future__ import annotations

import functools
import inspect
from numbers import Number
from sys import maxsize
from types import MethodType

from .. import _core
from .._containers.tree import map_tree, path
from .bridged_out import Outs
from .kind import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._containers.tree import Way

__all__ = ["bridged"]

# An importable class has one of these, itself or from a base.
_EXPORTS = {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__", "__dlpack__"}


class _Results:
    """The kind of the results of one call, and the argument that they are like."""

    __slots__ = ("kind", "like")

    def __init__(self, kind: Kind | None, like: Any = None) -> None:
        self.kind = kind
        self.like = like


class _Arguments:
    """The slow path of a bridged function's calls."""

    def __init__(
        self,
        function: Any,
        to: type,
        result: type | None,
        how: dict[str, bool],
        refuses_lists: bool,
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
        first = names.index("out") if "out" in names else maxsize
        nin, nargs = getattr(function, "nin", None), getattr(function, "nargs", None)
        if isinstance(nin, int) and isinstance(nargs, int):
            # A ufunc, which takes any number of them by position.
            self.outs = range(nin, nargs)
        elif any(p.name == "out" and p.kind is p.VAR_POSITIONAL for p in parameters):
            self.outs = range(len(names), maxsize)
        else:
            self.outs = range(first, first + 1)
        self.out = self.outs.start
        self.into = Kind(to, how)
        self.result = None if result is None else Kind(result, how)
        self.seen = _core.Types()

    def finish(
        self,
        taken: list[Any],
        kind: Kind | None,
        like: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call the function; ``taken`` holds its first arguments, converted."""
        results, outs = _Results(kind, like), Outs()
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
        results, outs = _Results(self.result), Outs()
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
        outs: Outs,
    ) -> None:
        """Convert the other arguments in place."""
        for position, x in enumerate(args[len(taken) :], len(taken)):
            written = outs if position in self.outs else None
            taken.append(self.argument(position, x, written, results))
        for name, x in kwargs.items():
            written = outs if name == "out" else None
            kwargs[name] = self.argument(name, x, written, results)

    def give(self, results: _Results, outs: Outs, value: Any) -> Any:
        """Check the ``out`` tensors, and convert the result."""
        if outs.seen:
            # The caller sees no result beside an out that was not written.
            for error, where in outs.replaced():
                self.note(error, "out", where)
                raise error
            if (own := outs.given(value)) is not None:
                return own
            return self.convert_result(results.kind, results.like, value, outs)
        if results.kind is None:
            return value
        return self.convert_result(results.kind, results.like, value)

    def convert_result(
        self, kind: Kind | None, like: Any, value: Any, outs: Outs | None = None
    ) -> Any:
        """Convert the result, with the caller's own objects in place of ``outs``."""

        def leaf(x: Any) -> Any:
            if outs is not None and (own := outs.given(x)) is not None:
                return own
            return x if kind is None else kind.leaf(x, None, like)

        way: Way = []
        try:
            return map_tree(leaf, value, way=way)
        except Exception as error:
            self.note(error, None, path(way))
            raise

    def argument(
        self, at: int | str, x: Any, outs: Outs | None, results: _Results
    ) -> Any:
        """Convert the argument at a position, or with a name."""

        def leaf(x: Any) -> Any:
            if not _core.is_tensor(x):
                return x
            into = self.into
            new = into.leaf(x) if outs is None else outs.take(into, x)
            if new is x and not isinstance(x, into.to):
                return x  # it has no numbers
            kind = self.kind_of(x)
            if results.kind is None:
                results.kind = kind
            same = kind.to is results.kind.to
            if same and results.like is None and kind.likes(x):
                results.like = x
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

    def kind_of(self, x: Any) -> Kind:
        """Return the kind of the results for an argument."""
        cls = type(x)
        kind: Kind | None = self.seen.get(cls)
        if kind is None or not kind.stands_for(cls):
            # The base that exports, not a view or parameter class derived from it.
            exporting = (
                base for base in cls.__mro__ if not _EXPORTS.isdisjoint(vars(base))
            )
            to = next(exporting, cls)
            if _core.only_exports(x):
                to = next(exporting, to)
            kind = Kind(to, self.into.how)
            self.seen.add(cls, kind)
        return kind

    def note(self, error: BaseException, at: int | str | None, where: str = "") -> None:
        """Add a note to ``error`` that names the argument, or else the result."""
        if isinstance(at, int) and at < len(self.names):
            at = self.names[at]
        what = "result" if at is None else f"argument {at}"
        name = getattr(self.function, "__qualname__", repr(self.function))
        error.add_note(f"{what}{where} of {name}")
        if at is None and self.result is None:
            error.add_note("result= of dlx.bridge names another type for results")


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


_Bridged = _core.bridged_type()


class _Attributes:
    """What a bridged function has besides being called: what its ``__dict__`` has."""

    __doc__ = property(lambda self: self.__dict__.get("__doc__"))
    __module__ = property(lambda self: self.__dict__.get("__module__"))

    def __getattr__(self: Any, name: str) -> Any:
        try:
            return self.__dict__[name]
        except KeyError:
            pass
        # From 3.14 on, `update_wrapper` copies no annotations: they are lazy.
        if name == "__annotations__":
            return self.__wrapped__.__annotations__
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}",
            name=name,
            obj=self,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self.__dict__:
            raise AttributeError(name)
        del self.__dict__[name]

    def __get__(self: Any, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self: Any) -> str:
        return str(self.__qualname__)  # by reference, like functions

    def __repr__(self: Any) -> str:
        function = self.__wrapped__
        return f"<dlx.bridge of {getattr(function, '__qualname__', function)}>"


# Not a class derived from it, which CPython would not call by vector.
for _each in (
    *("__doc__", "__module__", "__getattr__", "__setattr__", "__delattr__"),
    *("__get__", "__reduce__", "__repr__"),
):
    setattr(_Bridged, _each, vars(_Attributes)[_each])


def bridged(
    function: Any,
    to: type,
    result: type | None,
    how: dict[str, bool],
    refuses_lists: bool,
) -> Any:
    """Bridge a callable, a class method or a static method."""
    if isinstance(function, (classmethod, staticmethod)):
        inner = bridged(function.__func__, to, result, how, refuses_lists)
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
    arguments = _Arguments(function, to, result, how, refuses_lists)
    if not _is(inspect.iscoroutinefunction, function):
        call = _Bridged(
            function,
            to,
            arguments.seen,
            arguments.result,
            (arguments.receivers, arguments.out),
            (how["detach"], how["share_readonly"]),
            arguments,
            {},
        )
        return functools.update_wrapper(call, function)

    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return await arguments.call_coroutine(args, kwargs)

    return coroutine


def _is(kind: Callable[[object], bool], function: Any) -> bool:
    """Whether ``kind`` holds for ``function`` or its ``__call__`` method."""
    return kind(function) or kind(function.__call__)
