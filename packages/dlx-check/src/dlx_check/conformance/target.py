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

import os
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import metadata
from typing import Any, TypeAlias

__all__ = ["CannotCheck", "Expression", "Target", "wrong"]

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
    take_on: Expression | None = None
    """Imports for a stream, a handle or an object that has `__cuda_stream__`:
    `take_on(tensor, stream)`."""
    take_cuda: Expression | None = None
    """Imports an object that has `__cuda_array_interface__`, without a stream."""
    on_device: Expression | None = None
    """Makes six float32 of a device's memory, which a stream has written:
    `on_device(address, stream, (2, 0))`."""
    work_on: Expression | None = None
    """Makes a stream the library's current one: `with work_on(stream):`."""
    driver: str = ""
    """Environment variables that lead the library to another driver of CUDA or ROCm,
    if they are set before it uses a device."""
    stream: Expression | None = None
    """A stream of the library, an object that has `__cuda_stream__`."""
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
    """Tensors of special kinds: "read-only", "strided", "broadcast", "negative",
    "subclass", "negated", "conjugated", "requires-grad", "packed". Each value
    is an expression that makes such a tensor, as in `{"read-only": "mylib.frozen(3)"}`,
    or a function without parameters."""
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

    @property
    def statements(self) -> str:
        """Return what is imported before a fork."""
        path = os.environ.get("DLX_CHECK_DRIVER")
        variables = self.driver.split() if path else []
        driver = [f"import os; os.environ[{each!r}] = {path!r}" for each in variables]
        return "\n".join((*driver, "import numpy as np", self.imports, self.warm))

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
    def spelled(self) -> dict[str, Any]:
        """Return the fields that are text or numbers, of which reproductions are."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        found: dict[str, Any]
        found = {n: v for n, v in values.items() if isinstance(v, str | int)}
        for kinds in ("tensors", "cannot_export"):
            texts = values[kinds].items()
            found[kinds] = {name: text for name, text in texts if isinstance(text, str)}
        return found

    @property
    def version(self) -> str:
        """Return the version of the distribution, or of the first module."""
        try:
            return metadata.version(self.distribution or self.name)
        except metadata.PackageNotFoundError:
            words = self.imports.replace(",", " ").split()
            module = sys.modules.get(words[1]) if len(words) > 1 else None
            return str(getattr(module, "__version__", "unknown"))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "text"),
    "int": (lambda value: isinstance(value, int), "an int"),
    "float": (
        lambda value: isinstance(value, int | float) and value > 0,
        "a number of seconds",
    ),
    "frozenset[str]": (lambda value: isinstance(value, Set), "a set"),
    "Mapping[str, Expression]": (lambda value: isinstance(value, Mapping), "a dict"),
    "Expression | None": (
        lambda value: value is None or isinstance(value, str) or callable(value),
        "an expression, as text, or a function",
    ),
}
"""What a field has to be, by its annotation."""


_PROFILES = ("dlpack", "array-api", "from_dlpack", "table")
_TENSORS = (
    *("read-only", "strided", "broadcast", "negative", "subclass"),
    *("negated", "conjugated", "requires-grad", "packed"),
)


def wrong(target: Target) -> str:
    """Say which field of a target is not what it has to be, if one is not."""
    for each in fields(target):
        value = getattr(target, each.name)
        fits, kind = _KINDS.get(str(each.type), (lambda value: True, ""))
        if not fits(value):
            return f"{each.name}={value!r}) is not {kind}"
    for name, words, known in (
        ("profiles", target.profiles.split(), _PROFILES),
        ("tensors", target.tensors, _TENSORS),
    ):
        if unknown := sorted({*words} - {*known}):
            return f"{name}=...) has {unknown}; expected some of {', '.join(known)}"
    if not target.name.strip() or "/" in target.name:
        return f"name={target.name!r}) names no folder of reproductions"
    return ""
