"""Tries what a target describes, before the checks do.

Without this, the checks would find nothing to observe and say nothing, or call what a
description does wrong a fault of the suite.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dlx_check.conformance.reading import readable
from dlx_check.conformance.target import Expression, Target, exports, meant
from dlx_check.errors import described

__all__ = ["misspelled", "useless"]


def misspelled(target: Target) -> str:
    """Try the functions of a target; say which of them names what is not there.

    Whatever else they raise is for the checks to judge.
    """
    if fault := _unreadable(target) or _uncallable(target):
        return fault
    if target.dimensions not in range(_MOST + 1):
        return f"dimensions={target.dimensions!r}); expected 0 to {_MOST}"
    array = target.names["np"].arange(1, 7, dtype="float32")
    array = array.reshape(6, *[1] * (target.dimensions - 1))
    try:
        tensor = None
        for field in ("make", "take") if target.make is not None else ("take",):
            made = _tried(target, field, array)
            tensor = made if tensor is None else tensor
        if tensor is None:
            return ""
        shown = _tried(target, "show", tensor)
        if target.show is not None and shown is None:
            return _unshown(target, tensor)
        _tried(target, "view", tensor)
        where = _tried(target, "address", tensor)
        unwritten = _unwritten(target, tensor)
    except _Misspelled as fault:
        return str(fault)
    ndarray, kind = target.names["np"].ndarray, None
    for field, found, expected, what in (
        ("address", where, int, "an int"),
        ("show", shown, ndarray, "an array of NumPy"),
    ):
        if found is not None and not isinstance(found, expected):
            of, expression = type(found).__name__, getattr(target, field)
            return f"{field}={expression!r}) returns a {of}; expected {what}"
    if where is not None and (where <= 0 or not readable(where)):
        nowhere = ", where no memory is" if where else ""
        what = f"returns {where}{nowhere}; expected the address of the first element"
        return f"address={target.address!r}) {what}"
    if unwritten:
        return unwritten
    try:
        kind = target.value(target.type)
    except Exception as error:
        return f"type={target.type!r}) raises {described(error)}"
    if kind is None or isinstance(kind, type):
        return ""
    return f"type={target.type!r}) is a {type(kind).__name__}; expected a class"


def _unreadable(target: Target) -> str:
    """Say which text of a target is no Python, or names a tensor that is not there."""
    for each in fields(target):
        value = getattr(target, each.name)
        of_kinds = isinstance(value, Mapping)
        texts = value.items() if of_kinds else [(None, value)]
        for kind, text in texts:
            if not isinstance(text, str):
                continue
            place = f"{each.name}={{{kind!r}: {text!r}}}" if of_kinds else ""
            place = place or f"{each.name}={text!r}"
            try:
                if of_kinds:
                    target.value(text)
                elif "Expression" in str(each.type) or each.name in _STATEMENTS:
                    compile(text, "<string>", "exec")
            except (AttributeError, NameError, SyntaxError) as error:
                return f"{place}) raises {described(error)}"
            except Exception:
                continue  # for the checks to judge
    return ""


def _uncallable(target: Target) -> str:
    """Say which function cannot be called as the checks call it."""
    for field, accepted in _CALLED.items():
        expression = getattr(target, field)
        try:
            signature = inspect.signature(target.value(expression))
        except Exception:
            continue  # None, or what tells no signature
        try:
            signature.bind(*accepted)
        except TypeError:
            takes, expected = ", ".join(signature.parameters), ", ".join(accepted)
            return f"{field}={expression!r}) takes ({takes}); expected ({expected})"
    return ""


_CALLED = {
    "make": ("array",),
    "take": ("tensor",),
    "take_on": ("tensor", "stream"),
    "take_cuda": ("tensor",),
    "on_device": ("address", "stream", "device"),
    "work_on": ("stream",),
    "show": ("tensor",),
    "address": ("tensor",),
    "write": ("tensor", "value"),
    "writable": ("tensor",),
    "view": ("tensor",),
}
"""What the checks pass to the functions of a target."""
_STATEMENTS = ("free", "change")
_MOST = 8  # dimensions of a target that has a number of its own


def _unshown(target: Target, tensor: Any) -> str:
    """Say why no elements are seen: each check of them would be in error."""
    try:
        target.value(target.show)(tensor)
    except Exception as error:
        return f"show={target.show!r}) raises {described(error)}"
    return f"show={target.show!r}) returns None; expected an array of NumPy"


def _unwritten(target: Target, tensor: Any) -> str:
    """Say whether `write` does nothing, or `writable` something else than it says."""
    writable = _tried(target, "writable", tensor)
    says = f"writable={target.writable!r}) returns"
    if not isinstance(writable, _TRUTHS):
        return f"{says} a {type(writable).__name__}; expected True or False"
    _tried(target, "write", tensor, 0)
    if target.write is None:
        return ""
    try:
        target.value(target.write)(tensor, 0)
    except Exception as error:
        if not writable:
            return ""
        return f"{says} True for what `write` refuses: {described(error)}"
    shown = _tried(target, "show", tensor)
    if isinstance(shown, np.ndarray) and any(first := shown.reshape(-1)[:1]):
        what = f"leaves the first element at {first[0]}; expected a function that sets"
        return f"write={target.write!r}) {what} it"
    if writable is False:
        return f"{says} False for what `write` changes; expected True"
    return ""


_TRUTHS = bool, np.bool_, type(None)


class _Misspelled(Exception):
    """A function names what is not there."""


def _tried(target: Target, field: str, *arguments: Any) -> Any:
    """Call a function; return None for what it raises, if it is not misspelled."""
    expression: Expression | None = getattr(target, field)
    if expression is None:
        return None
    function, error = None, None
    try:
        function = target.value(expression)
        if not callable(function):
            of = type(function).__name__
            raise _Misspelled(f"{field}={expression!r}) is a {of}; expected a function")
        return function(*arguments)
    except _Misspelled:
        raise
    except (AttributeError, NameError) as found:
        error = found
    except Exception:
        return None
    name = error.name or ""
    code = getattr(function, "__code__", None)
    own = () if code is None else code.co_names
    if isinstance(expression, str) and code is not None:
        own = own if code.co_filename == "<string>" else ()
    if function is not None and name not in own:
        return None  # it is the library that names what is not there
    known = dir(error.obj) if isinstance(error, AttributeError) else target.names
    raise _Misspelled(
        f"{field}={expression!r}) raises {described(error)}{meant(name, known)}"
    )


def useless(target: Target) -> str:
    """Try what only some checks use; say what of it raises, or makes nothing of use.

    That is for who describes a library of his own: those that the suite knows may lack
    a kind of tensor in a version.
    """
    try:
        target.value(target.cpu or None)
    except Exception as error:
        what = "an expression, as in cpu=\"'cpu'\""
        return f"cpu={target.cpu!r}) raises {described(error)}; expected {what}"
    for kind, expression in target.cannot_export.items():
        place = f"cannot_export={{{kind!r}: {expression!r}}})"
        try:
            made = target.tensor(expression)
        except Exception as error:
            return f"{place} raises {described(error)}; expected a tensor"
        if not exports(made):
            return f"{place} is a {type(made).__name__}, which is no tensor"
    return _unprotected(target) or _unseen(target)


def _unprotected(target: Target) -> str:
    """Say whether `writable` calls writable what `tensors` calls read-only."""
    try:
        frozen = target.tensor(target.tensors["read-only"])
        writable = target.value(target.writable)(frozen)
    except Exception:
        return ""  # there is none, or a check says so
    if not writable:
        return ""
    what = f"returns {writable} for tensors['read-only']; expected False"
    return f"writable={target.writable!r}) {what}"


def _unseen(target: Target) -> str:
    """Say which of `view`, `free` and `change` does not do what a check waits for."""
    numpy = target.names["np"]
    six, one = numpy.arange(1, 7, dtype="float32"), numpy.ones(1, "float32")
    more = [1] * (target.dimensions - 1)
    shape = (2, 3) if target.dimensions in (0, 2) else (6, *more)
    try:
        make = target.value(target.make)
        x, y = make(six.reshape(shape)), make(one.reshape(1, *more))
    except Exception:
        return ""  # for the checks to judge
    if target.view is not None and (fault := _no_view(target, x)):
        return fault
    for name, wanted in (("free", "give x up"), ("change", "change the shape of x")):
        text = getattr(target, name)
        try:
            exec(text, {**target.names, "x": x, "y": y})
        except Exception as error:
            said = f"{name}={text!r}) raises {described(error)}"
            return f"{said}; expected statements that {wanted}"
        x = make(six.reshape(shape))
    return ""


def _no_view(target: Target, tensor: Any) -> str:
    """Say why what `view` makes cannot be looked at."""
    try:
        view = target.value(target.view)(tensor)
    except Exception as error:
        return f"view={target.view!r}) raises {described(error)}; expected a view"
    try:
        address = target.value(target.address)
        address(tensor)
    except Exception:
        return ""  # a check says so
    try:
        found = address(view)
    except Exception:
        found = None
    if isinstance(found, int):
        return ""
    of = type(view).__name__
    return f"view={target.view!r}) returns a {of}; expected a view of the tensor"
