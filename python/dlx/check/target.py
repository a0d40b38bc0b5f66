"""What the suite needs to know of a library: how it makes, takes and shows tensors.

A library's maintainer writes a function that returns a `Target`:

    def target() -> Target:
        return Target(name="mylib", imports="import mylib", make="mylib.asarray",
                      take="mylib.from_dlpack", show="np.asarray", type="mylib.Array")

Every field that is a function is an expression, so that a reproduction can print it; it
may use what `imports` binds, and NumPy as `np`. A Python function is accepted, too, but
then reproductions that need it are left out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from typing import Any, TypeAlias

__all__ = ["CannotCheck", "Expression", "Target", "load"]

Expression: TypeAlias = str | Callable[..., Any]


class CannotCheck(Exception):
    """The target cannot be checked; the message says why."""


@dataclass(frozen=True)
class Target:
    """One library, and how to handle its tensors on the CPU."""

    name: str
    imports: str
    """Statements that import the library."""
    make: Expression | None = None
    """Makes a tensor of a NumPy array; what it refuses is untestable."""
    take: Expression | None = None
    """The library's `from_dlpack`; None if it only exports."""
    show: Expression | None = None
    """Makes a NumPy array of a tensor, by the library's own means where it has any."""
    address: Expression | None = None
    """Returns the address of the first element."""
    write: Expression | None = None
    """Writes a value to the first element: `write(tensor, value)`."""
    writable: Expression | None = None
    """Returns whether a tensor may be written; None if the library cannot say."""
    type: Expression | None = None
    """The class of its tensors, where the exchange table is looked up."""
    tensors: Mapping[str, Expression] = field(default_factory=dict)
    """Tensors of special kinds: "read-only", "negative", "subclass", ... The values are
    expressions of the tensor itself, or functions without parameters."""
    cannot_export: Mapping[str, Expression] = field(default_factory=dict)
    """Tensors that the library has and DLPack cannot describe."""
    free: str = ""
    """Statements that give the memory of the tensor `x` up, `y` being another one."""
    change: str = ""
    """Statements that give the tensor `x` another shape in place."""
    view: Expression | None = None
    """Makes a view of a tensor, by the target's own means."""
    cpu: str = ""
    """The library's CPU, for `device=`."""
    dimensions: int = 0
    """The number of dimensions that its tensors have; 0 if they may have any."""
    warm: str = ""
    """Imports that only some of `tensors` need; they run before the fork."""
    setup: str = ""
    """Statements that start the library's runtime, in each child."""
    keywords: frozenset[str] = frozenset(("device", "copy"))
    """Keywords of `take`."""
    profiles: str = "dlpack array-api from_dlpack table"
    """What it means to follow; from_dlpack and array-api (`__dlpack__`) are parts of
    the array API."""
    distribution: str = ""
    """The name on PyPI, for the version; `name` if empty."""
    timeout: float = 10.0
    """Seconds after which a check hangs."""

    @cached_property
    def names(self) -> dict[str, Any]:
        """Run `imports`; return what expressions may use."""
        found: dict[str, Any] = {}
        exec("import numpy as np\n" + self.imports, found)
        return found

    def value(self, expression: Expression | None) -> Any:
        """Return what an expression means."""
        if isinstance(expression, str):
            return eval(expression, self.names)
        return expression

    def tensor(self, expression: Expression) -> Any:
        """Make a tensor of `tensors` or `cannot_export`."""
        found = self.value(expression)
        return found if isinstance(expression, str) else found()

    @property
    def version(self) -> str:
        """Return the version of the distribution, or of the first module."""
        try:
            return metadata.version(self.distribution or self.name)
        except metadata.PackageNotFoundError:
            words = self.imports.replace(",", " ").split()
            module = sys.modules.get(words[1]) if len(words) > 1 else None
            return str(getattr(module, "__version__", "unknown"))


def load(name: str) -> Target:
    """Return a shipped target by its name, or that of `package.module:factory`."""
    from dlx.check.targets import TARGETS

    if ":" in name:
        module, _, factory = name.partition(":")
        sys.path.insert(0, "")
        try:
            made = getattr(importlib.import_module(module), factory)()
        except Exception as error:
            raise CannotCheck(f"{name}: {type(error).__name__}: {error}") from error
        if not isinstance(made, Target):
            raise CannotCheck(f"{name} returned a {type(made).__name__}, not a Target")
        return made
    for target in TARGETS:
        if target.name == name:
            return target
    known = ", ".join(target.name for target in TARGETS)
    raise CannotCheck(
        f"no target {name!r}; known are {known}; your own is `package.module:factory`"
    )
