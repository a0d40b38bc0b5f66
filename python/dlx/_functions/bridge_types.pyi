"""What type checkers see of bridged functions.

``Bridged`` has the type of the function as one parameter, not as a ``ParamSpec`` and a
result: mypy solves ``Concatenate`` for a ``Callable`` alone. It is no protocol, for
whose variance mypy would compare all these overloads, for minutes.
"""

from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

import numpy as np
from numpy.typing import NDArray
from typing_extensions import CapsuleType

from .._core import _Namespace, _OfArrays, _OfNdarrays, _OfTensors
from ..types import SupportsExchangeAPI

class _Exports(Protocol):
    """An object with ``__dlpack__``, whatever its annotations say of the rest."""

    @property
    def __dlpack__(self) -> Callable[..., object]: ...

class _OfTensorFlow(Protocol):
    """A ``tensorflow.Tensor``, which has ``__dlpack__`` in a subclass alone."""

    @property
    def __tf_tensor__(self) -> Callable[..., object]: ...

# NumPy's ``__dlpack__`` is annotated for arrays of numbers, not of booleans.
_Tensor: TypeAlias = _Exports | SupportsExchangeAPI | _OfTensorFlow | NDArray[Any]
_Tensors: TypeAlias = _Tensor | Collection[_Tensor | None]
# What is searched for tensors. A string is no collection of collections of them.
_Tree: TypeAlias = (
    _Tensor | Collection[_Tensors | None] | tuple[Any, ...] | Mapping[Any, Any]
)
_Plain: TypeAlias = complex | str | bytes | np.generic | None

@final
class _Foreign:
    """A tensor of no library, which a parameter takes if it takes those of all."""

    __dlpack_c_exchange_api__: object
    def __dlpack__(self, *, stream: int | None = None) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __array__(
        self, dtype: Any | None = None, copy: bool | None = None
    ) -> NDArray[Any]: ...

@final
class _Nothing:
    """What no function returns but one that returns ``Any``."""

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T", bound=_Tensor)
Value = TypeVar("Value", bound=_Plain | tuple[_Plain, ...])
Function = TypeVar("Function", bound=Callable[..., Any])
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
R_co = TypeVar("R_co", covariant=True)
W_co = TypeVar("W_co", covariant=True)
First: TypeAlias = Literal["first"]
Named: TypeAlias = Literal["named"]
Own: TypeAlias = Literal["own"]
_Unknown: TypeAlias = Literal["unknown"]
K = TypeVar("K", bound=Literal["first", "named", "own", "unknown"])
K_co = TypeVar(
    "K_co", bound=Literal["first", "named", "own", "unknown"], covariant=True
)

class Bridged(Generic[F_co, R_co, K_co]):
    """A bridged function: its own signature ``F_co``, and others that take tensors.

    Those take tensors, and containers, of any library in place of the first four
    positional arguments, and of ``out``. A keyword needs the parameter's own type: with
    all of them open, a misspelt one would be no error.

    ``K_co`` says what comes back. ``First``: the type of the first argument, if that is
    a tensor of another library; up to three may be. ``Own``: what the function returns
    with its own tensors, else ``R_co``. ``Named``: always ``R_co``.
    """

    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> F_co: ...

    # Where a function's overloads make several of `Bridge` match, mypy has a
    # Bridged[Any, Any, Any].
    @overload
    def __call__(
        self: Bridged[Any, Any, _Unknown], *args: Any, **kwargs: Any
    ) -> Any: ...
    # The function itself takes tensors of all libraries, but returns its own.
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[_Foreign, Q], Any], Any, First],
        a: NDArray[Any],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[_Foreign, Q], Any], Any, First],
        a: T,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> T: ...
    @overload
    def __call__(
        self: Bridged[Callable[P, Any], R, Named], *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def __call__(
        self: Bridged[Callable[P, R], Any, Any], *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    # An array of NumPy has its dtype and shape in its type, the result has others.
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, Q], Any], Any, First],
        a: NDArray[Any],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, B, Q], Any], Any, First],
        a: NDArray[Any],
        b: B | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, B, C, Q], Any], Any, First],
        a: NDArray[Any],
        b: B | _Tree,
        c: C | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, Q], Any], Any, First],
        a: T,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> T: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, B, Q], Any], Any, First],
        a: T,
        b: B | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> T: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, B, C, Q], Any], Any, First],
        a: T,
        b: B | _Tree,
        c: C | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> T: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, Q], Any], R, Any],
        a: A | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> R: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, B, Q], Any], R, Any],
        a: A | _Tree,
        b: B | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> R: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, B, C, Q], Any], R, Any],
        a: A | _Tree,
        b: B | _Tree,
        c: C | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> R: ...
    @overload
    def __call__(
        self: Bridged[Callable[Concatenate[A, B, C, D, Q], Any], R, Any],
        a: A | _Tree,
        b: B | _Tree,
        c: C | _Tree,
        d: D | _Tree,
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> R: ...
    @overload
    def __call__(self, *args: Any, out: Any, **kwargs: Any) -> Any: ...
    # Whether a static method or not, when the first parameter takes anything.
    @overload
    def __get__(
        self: Bridged[Callable[Concatenate[_Nothing, Q], R], A, K],
        instance: object,
        owner: type | None = None,
        /,
    ) -> Bridged[Callable[..., R], A, K]: ...
    @overload  # of a class method, which a checker takes for a function
    def __get__(
        self: Bridged[Callable[Concatenate[type[S], Q], R], A, K],
        instance: object,
        owner: type[S],
        /,
    ) -> Bridged[Callable[Q, R], A, K]: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Bridged[F_co, R_co, K_co]: ...
    @overload
    def __get__(
        self: Bridged[Callable[Concatenate[S, Q], R], A, K],
        instance: S,
        owner: type | None = None,
        /,
    ) -> Bridged[Callable[Q, R], A, K]: ...
    @overload  # of a static method
    def __get__(
        self, instance: object, owner: type | None = None, /
    ) -> Bridged[F_co, R_co, K_co]: ...

class _Into(Generic[W_co]):
    """The base of `Bridge`: in a class itself, mypy takes no module for a protocol."""

class Bridge(_Into[W_co]):
    """The decorator that ``bridge`` returns; ``W_co`` is the type of its ``result``."""

    @overload
    def __call__(self, function: classmethod[S, P, R], /) -> classmethod[S, P, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Value], /
    ) -> Bridged[Callable[P, Value], Value, Own]: ...
    @overload  # ``result`` is of type ``Any``
    def __call__(
        self: _Into[_Nothing], function: Function, /
    ) -> Bridged[Function, Any, Named]: ...
    @overload
    def __call__(
        self: _Into[None], function: Callable[P, T], /
    ) -> Bridged[Callable[P, T], Any, First]: ...
    @overload
    def __call__(
        self: _Into[None], function: Function, /
    ) -> Bridged[Function, Any, Own]: ...
    # In the order of `convert`.
    @overload
    def __call__(
        self: _Into[_OfTensors[S] | _OfArrays[S]], function: Callable[P, T], /
    ) -> Bridged[Callable[P, T], S, Named]: ...
    @overload
    def __call__(
        self: _Into[_OfNdarrays], function: Callable[P, T], /
    ) -> Bridged[Callable[P, T], NDArray[Any], Named]: ...
    @overload
    def __call__(
        self: _Into[ModuleType | _Namespace | str], function: Function, /
    ) -> Bridged[Function, Any, Named]: ...
    @overload
    def __call__(
        self: _Into[type[S]], function: Callable[P, T], /
    ) -> Bridged[Callable[P, T], S, Named]: ...
    @overload
    def __call__(self, function: Function, /) -> Bridged[Function, Any, Named]: ...
