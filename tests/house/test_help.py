"""What `help()` shows of every public object."""

from __future__ import annotations

import doctest
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
def test_help_says_what_it_is_without_numbers_of_requirements(path: str) -> None:
    """CONTRIBUTING.md, Rules: tests cite them."""
    found = FOUND[path]
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    text = inspect.getdoc(found)
    assert text, f"{path} has no docstring"
    assert not re.search(r"\b[RHS]\d+\b", text), "tests cite requirements, not help()"


WITHOUT = {"CopyRefused", "CudaError", "DeviceType", "Tensor"}
"""Classes that other objects make, or that only raise."""


@pytest.mark.parametrize("name", sorted({*dlx.__all__} - WITHOUT - {"__version__"}))
def test_help_shows_an_example_that_works(name: str) -> None:
    """Each public function has one."""
    text = inspect.getdoc(getattr(dlx, name)) or ""
    parsed = doctest.DocTestParser().get_doctest(text, {"dlx": dlx}, name, None, 0)
    assert parsed.examples
    ran = doctest.DocTestRunner().run(parsed)
    assert (ran.attempted, ran.failed) == (len(parsed.examples), 0)


def test_the_directory_of_dlx_is_its_public_names() -> None:
    """All and only these."""
    assert dir(dlx) == sorted(dlx.__all__)
