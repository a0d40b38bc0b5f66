"""What `help()` shows of every public object."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import dlx
import dlx.types
import dlx_check.testing
import pytest

MODULES = (dlx, dlx.types, dlx_check.testing)

# What Python puts into classes, without a word or with words of its own.
OF_PYTHON = {"__dict__", "__hash__", "__init__", "__subclasshook__", "__weakref__"}


def documented() -> Iterator[tuple[str, Any]]:
    """Every public module, function and class, and the members of dlx's classes."""
    for module in MODULES:
        yield module.__name__, module
        for name in module.__all__:
            found = getattr(module, name)
            if isinstance(found, str):
                continue
            yield f"{module.__name__}.{name}", found
            if isinstance(found, type):
                yield from members(f"{module.__name__}.{name}", found)


def members(path: str, cls: type) -> Iterator[tuple[str, Any]]:
    """Members that the classes of dlx define: methods, properties."""
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        member = inspect.getattr_static(cls, name)
        if owner.__module__.partition(".")[0] != "dlx" or name in OF_PYTHON:
            continue
        if callable(getattr(member, "__get__", None)):
            yield f"{path}.{name}", member


FOUND = dict(documented())


def test_the_public_objects_are_found() -> None:
    """Those read below are all that dlx has, of each kind."""
    assert {"dlx.convert", "dlx.Tensor.shape", "dlx.types.SupportsDLPack"} <= {*FOUND}
    assert {"dlx.borrow.__enter__", "dlx.ExchangeMixin.from_dlpack"} <= {*FOUND}
    assert {f"dlx.{name}" for name in dlx.__all__} <= {*FOUND, "dlx.__version__"}


@pytest.mark.parametrize("path", FOUND)
def test_help_begins_with_what_it_is(path: str) -> None:
    """CONTRIBUTING.md: requirements are cited after the first paragraph."""
    found = FOUND[path]
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    text = inspect.getdoc(found)
    assert text, f"{path} has no docstring"
    first = text.partition("\n\n")[0]
    assert not re.search(r"\b[A-Z]{1,2}\d+\b", first), first
