"""``dlx.bridge``: call functions written for one library with tensors of any.

A bridged function is an object like that of ``functools.lru_cache`` and no function of
Python, whose frame would take as long as a conversion.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Literal, TypeAlias

    from typing_extensions import TypeVar

    from .._core import _Namespace, _OfArrays, _OfNdarrays, _OfTensors
    from .bridge_types import Bridge

    Framework: TypeAlias = (
        type[Any]
        | ModuleType
        | str
        | _Namespace
        | _OfTensors[Any]
        | _OfArrays[Any]
        | _OfNdarrays
    )
    Result = TypeVar("Result", bound=Framework | None, default=None)

__all__ = ["bridge"]


def bridge(
    to: Framework,
    *,
    result: Result | None = None,
    detach: bool = False,
    share_readonly: bool = False,
    lists: Literal["keep", "refuse"] = "keep",
) -> Bridge[Result]:
    """Let a function written for tensors ``to`` take tensors of any library.

    ``to`` and ``result`` are array types, namespaces, or the name of either. Tensor
    arguments, also in containers (see `dlx.convert_tree`), are converted to ``to``;
    instances of it and other values pass through. Tensors in the result are converted
    to ``result``, or to the type of the first tensor argument (positional ones first,
    then keywords, in order); without either they stay as they are. If that is an
    `ExchangeMixin` class, its first instance among the arguments makes them, by
    ``__dlx_like__``.

    A tensor that records gradients is refused. With ``detach=True`` an argument or a
    result that has to be converted is ``x.detach()``, where it has such a method. What
    is read-only is copied where ``to`` would let it be written, unless
    ``share_readonly=True`` (see `dlx.convert`).

    A list of numbers is no tensor: the function gets the list. With ``lists="refuse"``
    such an argument is a ``TypeError``.

    The argument ``out`` is written in place: its tensors are never copied, and if the
    function returns one of them, the caller gets its own object back. ``BufferError``
    if the function gives an ``out`` other memory or another shape instead. The receiver
    of a method (a first parameter named ``self`` or ``cls``) is not converted.

    Coroutine functions stay coroutine functions; class and static methods may be
    bridged before or after they become one. Raises ``TypeError`` for generator
    functions, and if ``to`` or ``result`` is anything else, and ``ValueError`` for
    another ``lists``. A failed conversion adds a note that names the
    argument, or the result, and the place in it; the function's own exceptions pass
    through.

        >>> import numpy as np
        >>> @dlx.bridge(np.ndarray)
        ... def smooth(x):
        ...     return (x[1:] + x[:-1]) / 2
        >>> smooth(dlx.from_dlpack(np.arange(3.0)))  # a tensor of any library
        dlx.Tensor(float64[2], cpu, [0.5, 1.5])
    """
    if lists not in ("keep", "refuse"):
        raise ValueError(f"lists is {lists!r}; expected 'keep' or 'refuse'")
    kind = _array_type(to)
    named = None if result is None else _array_type(result)

    def decorate(function: Any) -> Any:
        # Imported late, because it takes longer to import than the rest of dlx.
        from .bridged import bridged

        how = {"detach": detach, "share_readonly": share_readonly}
        return bridged(function, kind, named, how, lists == "refuse")

    return decorate  # type: ignore[return-value]


def _array_type(framework: Any) -> type:
    if isinstance(framework, str):
        from .._libraries.named import named

        framework = named(framework)
    if isinstance(framework, type):
        return framework
    is_module = isinstance(framework, type(sys))
    if not (is_module or hasattr(framework, "__array_namespace_info__")):
        raise TypeError(
            f"{framework!r} is no kind of tensor; expected a class, a module or its "
            "name, as in @dlx.bridge(np.ndarray)"
        )
    from .._core import array_type

    return array_type(framework)
