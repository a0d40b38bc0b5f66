"""The class under test, and what its rules compare."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from dlx_check.core import dlx

__all__ = ["Case", "description", "elements", "owns_table"]

_TABLE = "__dlpack_c_exchange_api__"


class Case:
    """The class under test, and the rule that is being checked."""

    def __init__(
        self, cls: type[Any], make: Callable[[], Any], shares_memory: bool
    ) -> None:
        """Start without a rule."""
        self.cls = cls
        self.make = make
        self.shares_memory = shares_memory
        self.rule = self.change = ""

    def check(self, rule: str, change: str) -> None:
        """Say which rule is checked from here on, and how to keep it."""
        self.rule, self.change = rule, change

    def broken(self, found: str) -> AssertionError:
        """Return the error for a rule that is broken."""
        name = self.cls.__qualname__
        return AssertionError(f"{name}: {self.rule}, but {found}; {self.change}")

    def call(
        self, name: str, function: Callable[..., Any], *args: Any, **kw: Any
    ) -> Any:
        """Call what must not raise."""
        try:
            return function(*args, **kw)
        except Exception as error:
            found = f"{name} raised {type(error).__name__}: {error}"
            raise self.broken(found) from error

    def read(self, x: object) -> dlx.Tensor:
        """Import what ``x`` exports."""
        found: dlx.Tensor = self.call("dlx.from_dlpack", dlx.from_dlpack, x)
        return found

    def capsule(self, x: Any, **keywords: Any) -> dlx.Tensor:
        """Import the versioned capsule of ``x``."""
        capsule = self.call("__dlpack__", x.__dlpack__, max_version=(1, 3), **keywords)
        return self.read(capsule)

    def imported(self, tensor: dlx.Tensor) -> Any:
        """Make an instance over ``tensor``."""
        return self.call("from_dlpack", self.cls.from_dlpack, tensor)


def owns_table(cls: type) -> bool:
    """Whether a class has an exchange table that none of its bases has."""
    own = vars(cls).get(_TABLE)
    return own is not None and all(
        vars(base).get(_TABLE) is not own for base in cls.__mro__[1:]
    )


def description(tensor: dlx.Tensor) -> tuple[Any, ...]:
    """Return everything about a tensor except where it is and what it holds."""
    return tensor.shape, tensor.strides, tensor.dtype, tensor.device, tensor.readonly


def elements(tensor: dlx.Tensor) -> tuple[Any, ...]:
    """Return shape, dtype and the bytes of the elements in row-major order."""
    compact = tensor.to(device="cpu", copy=True)
    values = ctypes.string_at(compact.data_ptr, compact.nbytes)
    return tensor.shape, tensor.dtype, values
