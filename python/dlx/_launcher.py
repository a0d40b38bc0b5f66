"""``dlx.launcher``: reads the signature of the function, once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from inspect import Parameter

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["launched"]


def launched(
    function: Any, give: str, writes: Any, dtypes: Any, contiguous: bool, on: Any
) -> Any:
    """Launch a callable, a class method or a static method."""
    if isinstance(function, (classmethod, staticmethod)):
        inner = launched(function.__func__, give, writes, dtypes, contiguous, on)
        return type(function)(inner)
    if not callable(function):
        raise TypeError(f"{function!r} cannot be launched; expected a callable")
    for kind in ("coroutine", "generator", "asyncgen"):
        is_kind: Callable[[Any], bool] = getattr(inspect, f"is{kind}function")
        if is_kind(function) or is_kind(function.__call__):
            raise TypeError(
                f"{function!r} is a {kind} function, which runs after its call, when "
                "the tensors are given back; expected a function that launches"
            )
    parameters = _Parameters(function)
    written = [writes] if isinstance(writes, (str, int)) else [*writes]
    writing = {parameters.at(name, "writes") for name in written}
    if isinstance(dtypes, Mapping):
        each = {parameters.at(name, "dtypes"): dtypes[name] for name in dtypes}
        dtypes = [each.get(name) for name in parameters.names]
    made = _core.launched_type()(
        function,
        [(str(name).lstrip("*"), name in writing) for name in parameters.names],
        parameters.positional,
        parameters.receivers,
        parameters.stream,
        give,
        dtypes,
        contiguous,
        on,
    )
    return functools.update_wrapper(made, function)


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
        self.keywords = [p.name for p in found if p.kind is Parameter.KEYWORD_ONLY]
        self.receivers = int(self.fixed[:1] in (["self"], ["cls"]))
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        self.takes_stream = kinds.get("stream") in named

    @property
    def names(self) -> list[str | int]:
        return [*self.fixed, *self.keywords, *_KINDS]

    @property
    def stream(self) -> int | None:
        return self.names.index("stream") if self.takes_stream else None

    @property
    def positional(self) -> int:
        return len(self.fixed)

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
        elif isinstance(name, int) and name >= 0:
            if name < len(self.fixed):
                return self.fixed[name]
            if "*args" in self.others.values():
                self.fixed += range(len(self.fixed), name + 1)
                return name
        raise ValueError(
            f"{option} has {name!r}, which is no parameter of {self.function!r}; "
            "expected the name of one, or its position"
        )


_KINDS = {"*args": Parameter.VAR_POSITIONAL, "**kwargs": Parameter.VAR_KEYWORD}
