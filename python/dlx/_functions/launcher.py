"""``dlx.launcher``: reads the signature of the function, once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from inspect import Parameter
from operator import attrgetter
from types import MethodType

from .. import _core
from .checks import Checks, dims_of
from .signature import signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["launched"]


def launched(
    function: Any,
    give: str,
    out: Any,
    accepts: dict[str, Any],
    contiguous: bool,
    align: int | None,
    devices: str,
    stream: Any,
    pointer: type,
) -> Any:
    """Launch a callable, a class method or a static method.

    ``accepts`` are the options that are said of all tensors, or of each parameter.
    """
    if isinstance(function, (classmethod, staticmethod)):
        how = give, out, accepts, contiguous, align, devices, stream, pointer
        return type(function)(launched(function.__func__, *how))
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
    foreign = _of_ctypes(function)
    if give == "address" and foreign is not None and foreign.argtypes is None:
        raise TypeError(
            f"{_name(foreign)} has no argtypes, so ctypes would pass addresses as "
            "32-bit ints; set them first, as [ctypes.c_void_p, ...]"
        )
    parameters = _Parameters(function)
    for x in parameters.bound():
        if _core.is_tensor(x):
            raise TypeError(
                f"{_name(function)} gets a {_core.type_name(type(x))} by functools."
                "partial or a default, which dlx neither checks nor converts; pass it "
                "in each call"
            )
    is_one = isinstance(out, str) or not hasattr(out, "__iter__")
    parameters.write([] if out is None else [out] if is_one else out)
    # What no tensor is accepted for, and why.
    barred: dict[str | int, Any] = {}
    if give == "address" and foreign is function:
        barred = {
            parameters.at(at, "argtypes"): NotImplemented
            for at, kind in enumerate(foreign.argtypes)
            if _is_of_numbers(kind)
        }
        _refuse_narrow(function, parameters.out)
    said = {
        option: parameters.each(option, value)
        if isinstance(value, (Mapping, list))
        else value
        for option, value in accepts.items()
    }
    parameters.named = {n: True for n in parameters.named if n not in barred}
    note = functools.partial(_note, function, parameters.fixed)
    checks = parameters.checks(said["shape"], said["size"], note)
    lengths = checks.numbers if checks is not None else {}
    for option, value in accepts.items():
        if isinstance(value, list):
            beyond = parameters.unnamed(said[option]) - lengths.keys()
            barred = dict.fromkeys(beyond, ...) | barred
    dtype = said["dtype"]
    if dtype is not None:
        barred |= dict.fromkeys(lengths)  # `checks` tells that they are ints
    if isinstance(dtype, dict):
        dtype = [parameters.of(name, dtype) for name in parameters.names]
    if barred:
        # A dtype that no tensor has.
        each = dtype if isinstance(dtype, list) else [dtype] * len(parameters.names)
        named = zip(parameters.names, each, strict=True)
        dtype = [barred.get(name, one) for name, one in named]
    if give not in _GIVEN:
        raise ValueError(f"give is {give!r}; expected one of {_GIVEN}")
    if devices not in _DEVICES:
        raise ValueError(f"devices is {devices!r}; expected one of {_DEVICES}")
    return _Launched(
        function,
        parameters,
        dtype,
        contiguous,
        align,
        devices == "one",
        give == "address",
        pointer if give == "pointer" else None,
        stream,
        checks,
        note,
    )


def _of_ctypes(function: Any) -> Any:
    """Return the function of ctypes that is called, known by its base, or None."""
    while isinstance(function, functools.partial):
        function = function.func
    bases = {(base.__module__, base.__name__) for base in type(function).__mro__}
    is_loaded = bases & {("_ctypes", "CFuncPtr"), ("_ctypes", "PyCFuncPtr")}
    return function if is_loaded else None


def _refuse_narrow(function: Any, positions: Iterable[str | int]) -> None:
    """Refuse types of C that cut an address, which a kernel would write to."""
    for at in positions:
        if not isinstance(at, int):
            continue  # all of them, lengths too
        if _is_of_numbers(kind := function.argtypes[at]):
            raise TypeError(
                f"argtypes of {_name(function)} has {kind.__name__} at position {at}, "
                "which holds no address; expected ctypes.c_void_p there"
            )


def _is_of_numbers(kind: Any) -> bool:
    """Whether a type of C cannot hold an address: the longer integers may."""
    import ctypes

    if not isinstance(kind, type) or not issubclass(kind, ctypes._SimpleCData):
        return False
    is_short = ctypes.sizeof(kind) < ctypes.sizeof(ctypes.c_void_p)
    return is_short or kind._type_ in "dg"  # type: ignore[attr-defined]


_MOST = 255  # arguments that a position may name
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
    while isinstance(function, functools.partial):
        function = function.func
    # What binds C code may qualify a name by a class of its own, or not at all.
    own = "__qualname__" if hasattr(function, "__code__") else "__name__"
    return getattr(function, own, None) or _core.type_name(type(function))


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
    """The parameters of a function, numbered for `launched_type`.

    Those that may be passed by position, other names, and two for the rest.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.expected, self.most = "the name of one, or its position", _MOST
        # From Python 3.13 on, all functions of ctypes have the same.
        found = signature(function) if _of_ctypes(function) is None else None
        # Whether a call has to pass all that are named by position.
        self.is_unsaid = found is None
        if found is None:
            found = [Parameter("args", Parameter.VAR_POSITIONAL)]
            self.expected = "a position, because it has no signature"
            if _of_ctypes(function) is function and function.argtypes is not None:
                self.is_unsaid = False  # ctypes sees to it
                self.most = len(function.argtypes)
                self.expected = f"a position below {self.most}, that of its argtypes"
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
        self.out: dict[str | int, bool] = {}
        self.named: dict[str | int, bool] = {}
        self.defaults = {p.name: p.default for p in found if p.name not in self.others}

    def bound(self) -> list[Any]:
        """Return what calls need not pass: defaults, and arguments of a partial."""
        of = self.function
        given = of.args if isinstance(of, functools.partial) else ()
        return [*given, *self.defaults.values()]

    @property
    def names(self) -> list[str | int]:
        return [*self.fixed, *self.keywords, *_KINDS]

    @property
    def numbers(self) -> dict[str | int, int]:
        """The number of each name; one that is positional only may be another's."""
        named = enumerate(self.names[:-2])
        return {n: at for at, n in named if n not in self.positional_only}

    @property
    def by_position(self) -> int:
        """How many may be passed by position."""
        return len(self.fixed)

    @property
    def stream(self) -> int | None:
        """The number of the stream."""
        return self.names.index("stream") if self.takes_stream else None

    @property
    def written(self) -> list[bool]:
        """Whether tensors of each are written to."""
        return [self.of(name, self.out) is not None for name in self.names]

    @property
    def tensors(self) -> list[bool]:
        """Whether an option names each: it takes tensors and addresses."""
        return [self.of(name, self.named) is not None for name in self.names]

    @property
    def optional(self) -> list[bool]:
        """Whether None is the default of each."""
        return [self.defaults.get(str(name), name) is None for name in self.names]

    def write(self, out: Iterable[Any]) -> None:
        """Note the parameters whose tensors are written to."""
        self.out = {self.at(name, "out"): True for name in out}
        self.named |= self.out

    def each(self, option: str, said: Any) -> dict[str | int, Any]:
        """Return what an option says of parameters, in a dict or by position."""
        each: dict[str | int, Any] = {}
        for name, value in (
            said.items() if isinstance(said, Mapping) else enumerate(said)
        ):
            if value is None and name == 0 and self.receivers:
                continue  # by position, nothing is said of the receiver
            place = self.at(name, option)
            if place in each:
                raise ValueError(f"{option} names the parameter {place!r} twice")
            each[place] = value
            if value is not None:
                self.named[place] = True
        return each

    def checks(self, shape: Any, size: Any, note: Callable[..., None]) -> Checks | None:
        """Return what a call is checked by, None if by nothing."""
        least = len(self.fixed) if self.is_unsaid else 0
        if shape is None and size is None and not least:
            return None
        said = {"shape": shape, "size": size}
        dims = [
            {name: dims_of(option, value) for name, value in of.items()}
            if isinstance(of, dict)
            else dict.fromkeys(self.names, dims_of(option, of))
            for option, of in said.items()
        ]
        has_keywords = "**kwargs" in self.others.values()
        return Checks(
            self.of,
            self.fixed,
            self.defaults,
            has_keywords,
            self.receivers,
            least,
            note,
            *dims,
        )

    def of(self, name: str | int, said: Mapping[str | int, Any]) -> Any:
        """Return what an option says of a parameter; of one in a star, what of that."""
        star = "*args" if isinstance(name, int) else "**kwargs"
        is_starred = name not in self.declared and name not in _KINDS
        return said.get(name, said.get(star) if is_starred else None)

    def unnamed(self, said: Mapping[str | int, Any]) -> set[str | int]:
        """Return the parameters that may have tensors, of which a list says nothing."""
        others = {"stream", *self.fixed[: self.receivers]}
        return set(self.names) - said.keys() - others

    def at(self, name: Any, option: str) -> str | int:
        """Return the parameter that an option names, by its name or its position."""
        if self.receivers and name in (0, self.fixed[0]) and name is not False:
            raise ValueError(
                f"{option} names {self.fixed[0]!r}, the receiver of "
                f"{_name(self.function)}, which is passed on; a parameter that takes "
                "tensors needs another name"
            )
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
            if "*args" in self.others.values() and name < self.most:
                self.fixed += range(len(self.fixed), name + 1)
                return name
        raise ValueError(
            f"{option} has {name!r}, which is no parameter of {_name(self.function)}; "
            f"expected {self.expected}"
        )


_KINDS = {"*args": Parameter.VAR_POSITIONAL, "**kwargs": Parameter.VAR_KEYWORD}
