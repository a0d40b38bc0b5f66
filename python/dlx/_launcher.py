"""``dlx.launcher``: reads the signature of the function, once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from inspect import Parameter
from operator import attrgetter
from types import MethodType

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["launched"]


def launched(
    function: Any,
    give: str,
    writes: Any,
    dtypes: Any,
    contiguous: bool,
    devices: str,
    on: Any,
    pointer: type,
) -> Any:
    """Launch a callable, a class method or a static method."""
    if isinstance(function, (classmethod, staticmethod)):
        of = function.__func__
        inner = launched(of, give, writes, dtypes, contiguous, devices, on, pointer)
        return type(function)(inner)
    if not callable(function):
        raise TypeError(f"{function!r} cannot be launched; expected a callable")
    inner = inspect.unwrap(function)  # contextlib.contextmanager wraps a generator
    for kind in ("coroutine", "generator", "asyncgen"):
        is_kind: Callable[[Any], bool] = getattr(inspect, f"is{kind}function")
        if is_kind(inner) or is_kind(inner.__call__):
            raise TypeError(
                f"{function!r} is a {kind} function, which runs after its call, when "
                "the tensors are given back; expected a function that launches"
            )
    parameters = _Parameters(function)
    named = [writes] if isinstance(writes, (str, int)) else [*writes]
    written = {parameters.at(name, "writes"): True for name in named}
    each: dict[str | int, Any] = {}
    if isinstance(dtypes, Mapping):
        for name in dtypes:
            place = parameters.at(name, "dtypes")
            if place in each:
                raise ValueError(f"dtypes names the parameter {place!r} twice")
            each[place] = dtypes[name]
        dtypes = [parameters.of(name, each) for name in parameters.names]
    elif isinstance(dtypes, list):
        raise TypeError("dtypes is a list; expected a dtype, or a dict by parameter")
    if give not in _GIVEN:
        raise ValueError(f"give is {give!r}; expected one of {_GIVEN}")
    if devices not in _DEVICES:
        raise ValueError(f"devices is {devices!r}; expected one of {_DEVICES}")
    names = parameters.names
    if len(names) > _NO_STREAM:
        raise ValueError(
            f"{function!r} has {len(names) - 2} parameters, which is more than 253"
        )
    places = [len(parameters.fixed), parameters.receivers, _NO_STREAM]
    if parameters.takes_stream:
        places[-1] = names.index("stream")
    return _Launched(
        function,
        # A name of a positional-only parameter may be another argument's.
        {
            name: number
            for number, name in enumerate(names[:-2])
            if name not in parameters.positional_only
        },
        ("stream",),
        bytes([*places, *(parameters.of(n, written) is not None for n in names)]),
        dtypes,
        contiguous,
        devices == "one",
        give == "address",
        pointer if give == "pointer" else None,
        on,
        functools.partial(_note, function, names[: len(parameters.fixed)]),
    )


_NO_STREAM = 255
_GIVEN = ("address", "pointer", "tensor")
_DEVICES = ("one", "any")


def _note(
    function: Any,
    fixed: list[str | int],
    error: BaseException,
    index: int,
    positional: int,
    names: tuple[str, ...] | None,
) -> None:
    """Add a note to ``error`` that names the argument of a call."""
    if index >= positional:
        name: Any = (names or ())[index - positional]
    else:
        name = fixed[index] if index < len(fixed) else index
    error.add_note(f"argument {name} of {_name(function)}")


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


_Launched = _core.launched_type()


class _Attributes:
    """What a launched function has besides being called."""

    __doc__ = property(attrgetter("__wrapped__.__doc__"))
    __module__ = property(attrgetter("__wrapped__.__module__"))

    def __get__(self: Any, instance: object, owner: type | None = None) -> Any:
        # As the function itself: builtins and bound methods do not bind.
        is_bound = isinstance(self.__wrapped__, MethodType)
        if instance is None or is_bound or not hasattr(self.__wrapped__, "__get__"):
            return self
        return MethodType(self, instance)

    def __getattr__(self: Any, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __reduce__(self: Any) -> str:
        return str(self.__qualname__)  # by reference, like functions

    def __repr__(self: Any) -> str:
        return f"<dlx.launcher of {_name(self.__wrapped__)}>"


for _each in (
    *("__doc__", "__module__"),
    *("__get__", "__getattr__", "__reduce__", "__repr__"),
):
    setattr(_Launched, _each, vars(_Attributes)[_each])


class _Parameters:
    """The parameters of a function, in the order that `launched_type` expects.

    Those that may be passed by position, other names, and two for the rest.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        try:
            found = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):  # C functions, as of ctypes, have none
            found = [Parameter("args", Parameter.VAR_POSITIONAL)]
        kinds = {p.name: p.kind for p in found}
        self.others = {
            p.name: star
            for p in found
            for star in ("*args", "**kwargs")
            if p.kind is _KINDS[star]
        }
        self.fixed: list[str | int] = [
            p.name for p in found if p.kind <= Parameter.POSITIONAL_OR_KEYWORD
        ]
        self.positional_only = {
            p.name for p in found if p.kind is Parameter.POSITIONAL_ONLY
        }
        self.keywords = [p.name for p in found if p.kind is Parameter.KEYWORD_ONLY]
        self.declared = {*self.fixed, *self.keywords}
        self.receivers = int(self.fixed[:1] in (["self"], ["cls"]))
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        self.takes_stream = kinds.get("stream") in named

    @property
    def names(self) -> list[str | int]:
        return [*self.fixed, *self.keywords, *_KINDS]

    def of(self, name: str | int, said: Mapping[str | int, Any]) -> Any:
        """Return what an option says of a parameter; of one in a star, what of that."""
        star = "*args" if isinstance(name, int) else "**kwargs"
        is_starred = name not in self.declared and name not in _KINDS
        return said.get(name, said.get(star) if is_starred else None)

    def at(self, name: Any, option: str) -> str | int:
        """Return the parameter that an option names, by its name or its position."""
        if isinstance(name, str):
            if name in self.fixed or name in self.keywords:
                return name
            if name in self.others:
                return self.others[name]
            if "**kwargs" in self.others.values():
                self.keywords.append(name)
                return name
        elif isinstance(name, int) and not isinstance(name, bool) and name >= 0:
            if name < len(self.fixed):
                return self.fixed[name]
            if "*args" in self.others.values() and name < _NO_STREAM:
                self.fixed += range(len(self.fixed), name + 1)
                return name
        raise ValueError(
            f"{option} has {name!r}, which is no parameter of {self.function!r}; "
            "expected the name of one, or its position"
        )


_KINDS = {"*args": Parameter.VAR_POSITIONAL, "**kwargs": Parameter.VAR_KEYWORD}
