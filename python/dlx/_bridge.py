"""``dlx.bridge``: functions written for one framework take tensors of any."""

from __future__ import annotations

import functools
import inspect
from sys import maxsize

from . import _core, convert
from ._tree import map_tree

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

# What most arguments are that are no tensors.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, slice)


# What a class that makes itself readable has.
_EXPORTS = {
    "__dlpack_c_exchange_api__",
    "__c_dlpack_exchange_api__",
    "__dlpack__",
}


def _as_it_is(value: Any) -> Any:
    return value


class _Kind:
    """One kind of tensor, and how others become it."""

    def __init__(self, to: Framework) -> None:
        self.to = to
        self.instances = to if isinstance(to, type) else ()
        # Whether objects are converted, by exact type. What is no tensor is not remembered:
        # its class may become one of tensors later.
        self.known = dict.fromkeys(_PLAIN, False)

    def leaf(self, x: Any, copy: bool | None = None) -> Any:
        """Convert ``x`` if it is a tensor of another kind."""
        if not _core.is_tensor(x):
            return x
        new = x
        if not isinstance(x, self.instances):
            new = convert(x, self.to, copy=copy)
        self.known[type(x)] = new is not x
        return new

    def give(self, value: Any) -> Any:
        """Convert what a function returned."""
        foreign = self.known.get(type(value))
        if foreign is None:
            return map_tree(self.leaf, value)
        return convert(value, self.to) if foreign else value


class _Outs:
    """What one call writes in place: the caller's own objects, by what the function sees."""

    def __init__(self) -> None:
        # The keys are addresses of what the values keep alive.
        self.seen: dict[int, tuple[Any, Any]] = {}

    def note(self, new: Any, x: Any) -> None:
        """Remember that the function sees ``new`` in place of ``x``."""
        self.seen[id(new)] = (new, x)

    def give(self, kind: _Kind | None, value: Any) -> Any:
        """Convert what a function returned; what it saw becomes the caller's own object."""
        if (own := self.seen.get(id(value))) is not None:
            return own[1]

        def leaf(x: Any) -> Any:
            if (own := self.seen.get(id(x))) is not None:
                return own[1]
            return x if kind is None else kind.leaf(x)

        return map_tree(leaf, value)


class _Arguments:
    """How the arguments of one function are converted, and what its results become."""

    def __init__(self, function: Any, to: Framework, result: Framework | None) -> None:
        self.function = getattr(function, "__qualname__", repr(function))
        self.into = _Kind(to)
        self.result = None if result is None else _Kind(result)
        self.kinds: dict[type, _Kind] = {}  # of results, by exact type of an argument
        try:
            parameters = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):  # not every builtin function tells it
            parameters = []
        self.names = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        self.receivers = int(self.names[:1] in (["self"], ["cls"]))
        self.out = self.names.index("out") if "out" in self.names else maxsize

    def take(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], Callable[[Any], Any]]:
        """Convert the arguments, keywords in place; also give what converts the result."""
        to, known, kinds, kind = self.into.to, self.into.known, self.kinds, self.result
        outs = _Outs() if "out" in kwargs or len(args) > self.out else None
        taken = [*args[: self.receivers]]
        name = ""
        try:
            for x in args[self.receivers :]:
                foreign = known.get(type(x))
                if foreign is None or len(taken) == self.out:
                    new, found = self.unusual(
                        x, outs if len(taken) == self.out else None
                    )
                else:
                    new = convert(x, to) if foreign else x
                    found = kinds.get(type(x))
                taken.append(new)
                if kind is None:
                    kind = found
            for name, x in kwargs.items():
                if known.get(type(x)) is not False or name == "out":
                    kwargs[name], found = self.unusual(
                        x, outs if name == "out" else None
                    )
                else:
                    found = kinds.get(type(x))
                if kind is None:
                    kind = found
        except Exception as error:
            at = len(taken)
            if at < len(args):
                name = self.names[at] if at < len(self.names) else str(at)
            error.add_note(f"argument {name} of {self.function}")
            raise
        if outs is not None:
            return taken, functools.partial(outs.give, kind)
        return taken, _as_it_is if kind is None else kind.give

    def unusual(self, x: Any, outs: _Outs | None) -> tuple[Any, _Kind | None]:
        """Convert what may be a container, or of a type not seen before, or written in place.

        Also give the kind of the first tensor in it.
        """
        first = None

        def leaf(x: Any) -> Any:
            nonlocal first
            if not _core.is_tensor(x):
                return x
            kind = self.kind_of(type(x))
            first = first or kind
            if outs is None:
                return self.into.leaf(x)
            try:
                new = self.into.leaf(x, copy=False)
            except _core.CopyRefused as refused:
                raise _core.CopyRefused(
                    f"out is written in place, where its owner sees it: {refused}"
                ) from refused
            outs.note(new, x)
            return new

        new = map_tree(leaf, x)
        if outs is not None:
            outs.note(new, x)
        return new, first

    def kind_of(self, cls: type) -> _Kind:
        """Tell what results become for an argument of ``cls``: no view, parameter or the like."""
        if cls not in self.kinds:
            exporting = (
                base for base in cls.__mro__ if not _EXPORTS.isdisjoint(vars(base))
            )
            base = next(exporting, cls)
            self.kinds[cls] = self.kinds.setdefault(base, _Kind(base))
        return self.kinds[cls]


def bridge(to: Framework, *, result: Framework | None = None) -> Bridge:
    """Let a function that was written for tensors ``to`` take and return those of its caller.

    ``to`` and ``result`` are what `dlx.convert` accepts. Tensors among the arguments, also
    in containers (see `dlx.convert_tree`), become ``to``; all else passes through. Tensors
    in the result become what the first tensor argument is (positional ones first, then
    keywords, in order), or ``result``; without a tensor argument they stay as they are.

    The argument ``out`` is written in place: its tensors are never copied, and where the
    function returns one of them, the caller gets its own object. The receiver of a method
    (a first parameter named ``self`` or ``cls``) is left alone.

    Coroutine functions stay such; class and static methods may be bridged before or after
    they become one. Raises ``TypeError`` for generator functions, and where ``to`` or
    ``result`` is neither a class nor a module. What `dlx.convert` raises has a note that
    names the argument; the function's own exceptions pass through.
    """
    for framework in (to,) if result is None else (to, result):
        if not isinstance(framework, (type, type(inspect))):
            raise TypeError(
                f"{framework!r} is not a kind of tensor: a class or a module is accepted, "
                "as in @dlx.bridge(np.ndarray)"
            )

    def decorate(function: Any) -> Any:
        if isinstance(function, (classmethod, staticmethod)):
            return type(function)(decorate(function.__func__))
        if not callable(function):
            raise TypeError(f"{function!r} cannot be bridged: a callable is accepted")
        called = (function, function.__call__)
        if any(map(inspect.isgeneratorfunction, called)) or any(
            map(inspect.isasyncgenfunction, called)
        ):
            raise TypeError(
                f"{function!r} is a generator function, whose results are not converted: "
                "a function that returns is accepted"
            )
        take = _Arguments(function, to, result).take
        if any(map(inspect.iscoroutinefunction, called)):

            @functools.wraps(function)
            async def bridged_coroutine(*args: Any, **kwargs: Any) -> Any:
                taken, give = take(args, kwargs)
                return give(await function(*taken, **kwargs))

            return bridged_coroutine

        @functools.wraps(function)
        def bridged(*args: Any, **kwargs: Any) -> Any:
            taken, give = take(args, kwargs)
            return give(function(*taken, **kwargs))

        return bridged

    return decorate
