"""The parameters of a function, also of one that nanobind or pybind11 binds."""

from __future__ import annotations

import ast
import inspect
from inspect import Parameter
from types import WrapperDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["signature"]


def signature(function: Any) -> list[Parameter] | None:
    """Return the parameters; None of a function of C that does not say them."""
    try:
        found = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return _written(function)
    # From Python 3.13 on, the `__call__` of each class in C has this signature.
    is_any = [p.kind for p in found] == [
        Parameter.VAR_POSITIONAL,
        Parameter.VAR_KEYWORD,
    ]
    in_c = isinstance(type(function).__call__, WrapperDescriptorType)
    if is_any and in_c and not hasattr(function, "__code__"):
        return _written(function)
    return found


def _written(function: Any) -> list[Parameter] | None:
    """Return the parameters that nanobind and pybind11 write of one function.

    None of overloads, and of a signature that is not Python.
    """
    texts = []
    if type(function).__name__ in ("nb_func", "nb_method"):  # not one that is bound
        texts = [each[0] for each in function.__nb_signature__]
    elif inspect.isbuiltin(function):
        owner = type(function.__self__).__name__
        if owner == "PyCapsule" or owner.startswith("pybind11_detail"):
            texts = [f"def {str(function.__doc__).partition(chr(10))[0]}"]
    if len(texts) != 1:
        return None
    try:
        [made] = ast.parse(f"{texts[0]}: ...").body
    except SyntaxError:
        return None
    if not isinstance(made, ast.FunctionDef) or made.args.vararg or made.args.kwarg:
        return None
    of, named = made.args, Parameter.POSITIONAL_OR_KEYWORD
    positional = len(of.posonlyargs) + len(of.args)
    defaults = [None] * (positional - len(of.defaults)) + of.defaults
    kinds = (
        (Parameter.POSITIONAL_ONLY, of.posonlyargs, defaults),
        (named, of.args, defaults[len(of.posonlyargs) :]),
        (Parameter.KEYWORD_ONLY, of.kwonlyargs, of.kw_defaults),
    )
    return [
        Parameter(each.arg, kind, default=_value(default))
        for kind, each_of, values in kinds
        for each, default in zip(each_of, values, strict=False)
    ]


def _value(default: ast.expr | None) -> Any:
    """Return a default, or `...` where it is no literal."""
    if default is None:
        return Parameter.empty
    try:
        return ast.literal_eval(default)
    except ValueError:
        return ...
