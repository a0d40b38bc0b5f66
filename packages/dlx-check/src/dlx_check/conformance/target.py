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

import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeAlias

from dlx_check.conformance.installed import version

__all__ = ["CannotCheck", "Expression", "Target", "exports", "meant", "wrong"]

Expression: TypeAlias = str | Callable[..., Any]


class CannotCheck(Exception):
    """The target cannot be checked; the message says why."""


@dataclass(frozen=True)
class Target:
    """One library, and how to handle its tensors on the CPU.

    Raises nothing for a wrong field: `python -m dlx check` says which one is wrong.

    name: of the library, in reports.
    imports: statements that import it.
    make: makes a tensor of a NumPy array; what it refuses is untestable.
    take: the library's `from_dlpack`; None if it only exports.
    take_on: imports for a stream, a handle or an object that has `__cuda_stream__`:
        `take_on(tensor, stream)`.
    take_cuda: imports an object that has `__cuda_array_interface__`, without a stream.
    on_device: makes six float32 of a device's memory, which a stream has written:
        `on_device(address, stream, (2, 0))`.
    work_on: makes a stream the library's current one: `with work_on(stream):`.
    driver: environment variables that lead the library to another driver of CUDA or
        ROCm, if they are set before it uses a device.
    stream: a stream of the library, an object that has `__cuda_stream__`.
    show: makes a NumPy array of a tensor, by the library's own means where it has any.
    address: returns the address of the first element, an int; only by that does the
        suite see whether memory is shared.
    write: writes a value to the first element: `write(tensor, value)`.
    writable: returns whether a tensor may be written; None if the library cannot say.
    type: the class of its tensors, where the exchange table is looked up.
    tensors: tensors of special kinds: "read-only", "strided", "broadcast", "negative",
        "transposed", "subclass", "negated", "conjugated", "requires-grad", "packed".
        Each value is an expression that makes such a tensor, as in
        `{"read-only": "mylib.frozen(3)"}`, or a function without parameters.
    cannot_export: tensors that the library has and DLPack cannot describe, by any name.
    free: statements that give the memory of the tensor `x` up, `y` being another one.
    change: statements that give the tensor `x` another shape in place.
    view: makes a view of a tensor, by the target's own means.
    cpu: the library's CPU, for `device=`.
    dimensions: the number of dimensions that its tensors have; 0 if they may have any.
    warm: imports that only some of `tensors` need; they run before the fork.
    setup: statements that start the library's runtime, in each child.
    keywords: keywords of `take`.
    profiles: what it means to follow, some of "dlpack array-api from_dlpack table";
        array-api (`__dlpack__`) and from_dlpack are parts of the array API.
    distribution: its name on PyPI, for the version; if it is empty, the distribution
        that has installed the library's module tells.
    timeout: seconds after which a check hangs.
    """

    name: str
    imports: str
    make: Expression | None = None
    take: Expression | None = None
    take_on: Expression | None = None
    take_cuda: Expression | None = None
    on_device: Expression | None = None
    work_on: Expression | None = None
    driver: str = ""
    stream: Expression | None = None
    show: Expression | None = None
    address: Expression | None = None
    write: Expression | None = None
    writable: Expression | None = None
    type: Expression | None = None
    tensors: Mapping[str, Expression] = field(default_factory=dict)
    cannot_export: Mapping[str, Expression] = field(default_factory=dict)
    free: str = ""
    change: str = ""
    view: Expression | None = None
    cpu: str = ""
    dimensions: int = 0
    warm: str = ""
    setup: str = ""
    keywords: frozenset[str] = frozenset(("device", "copy"))
    profiles: str = "dlpack array-api from_dlpack table"
    distribution: str = ""
    timeout: float = 10.0

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
        """Return the version of the library, "unknown" if nothing tells it."""
        return version(self)


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
    *("read-only", "strided", "broadcast", "negative", "transposed", "subclass"),
    *("negated", "conjugated", "requires-grad", "packed"),
)


def meant(name: str, known: Iterable[str]) -> str:
    """Propose a name that is known for one that is not, if there is a near one."""
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


_EXPORTS = "__dlpack__", "__dlpack_c_exchange_api__"


def exports(value: Any) -> bool:
    """Return whether a value may be a tensor, and not the class of tensors."""
    return not isinstance(value, type) and any(hasattr(value, n) for n in _EXPORTS)


def wrong(target: Target) -> str:
    """Say which field of a target is not what it has to be, if one is not."""
    for each in fields(target):
        value = getattr(target, each.name)
        fits, kind = _KINDS.get(str(each.type), (lambda value: True, ""))
        if not fits(value):
            return f"{each.name}={value!r}) is not {kind}"
    for name in ("tensors", "cannot_export"):
        for kind, made in getattr(target, name).items():
            if not (
                isinstance(kind, str) and (isinstance(made, str) or callable(made))
            ):
                what = "a kind and an expression, as text, or a function"
                return f"{name}={{{kind!r}: {made!r}}}) is not {what}"
    if not target.profiles.split():
        return f"profiles={target.profiles!r}) names none; expected some of " + (
            ", ".join(_PROFILES)
        )
    for name, words, known in (
        ("profiles", target.profiles.split(), _PROFILES),
        ("tensors", target.tensors, _TENSORS),
        ("keywords", target.keywords, ("device", "copy")),
    ):
        if unknown := sorted({*words} - {*known}):
            return f"{name}=...) has {unknown}; expected some of {', '.join(known)}"
    if not target.name.strip() or "/" in target.name:
        return f"name={target.name!r}) names no folder of reproductions"
    return ""
