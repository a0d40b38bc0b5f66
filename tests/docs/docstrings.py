"""An extension of Griffe: signatures from the stub, texts from the running library.

The stub has the first line of each docstring; the extension module has all of it.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import dlx
import griffe

NAME = re.compile(r"(?<!`)`([\w.]+)`(?!`)")


def merged(overloads: list[Any]) -> Any:
    """Return the last overload, which is the most general, as if it were the only one.

    It is annotated where all agree, and has the default of any.
    """
    general = overloads[-1]
    for parameter in general.parameters:
        same = [
            each
            for overload in overloads
            for each in overload.parameters
            if each.name == parameter.name
        ]
        if len({str(each.annotation) for each in same}) > 1:
            parameter.annotation = None
        defaults = (each.default for each in same if each.default is not None)
        parameter.default = next(defaults, None)
    if len({str(each.returns) for each in overloads}) > 1:
        general.returns = None
    documented = (each.docstring for each in overloads if each.docstring)
    general.docstring = next(documented, None)
    return general


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Replaces each docstring of the stub by that of the extension module."""

    def on_members(self, *, obj: Any, **_: Any) -> None:
        """Show one signature of what the stub only overloads."""
        for name, overloads in [*obj.overloads.items()]:
            if name not in obj.members:
                obj.set_member(name, merged(overloads))
                del obj.overloads[name]

    def on_class(self, *, cls: Any, **_: Any) -> None:
        """Show how an instance is made: by ``__new__`` in extension classes."""
        if "__new__" in cls.members and "__init__" not in cls.members:
            new = cls.members.pop("__new__")
            new.name = "__init__"
            cls.set_member("__init__", new)

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Take the text of an object, with links to what it names."""
        if obj.docstring is None or obj.is_module:
            return
        documented = obj.is_function or obj.is_class or "property" in obj.labels
        if obj.module.path == "dlx._core" and documented:
            real: Any = dlx._core
            for name in obj.path.split(".")[2:]:
                real = inspect.getattr_static(real, name, None)
            if text := real and inspect.getdoc(real):
                obj.docstring = griffe.Docstring(text, parent=obj)
        obj.docstring.value = NAME.sub(self.link, obj.docstring.value)

    @staticmethod
    def link(name: re.Match[str]) -> str:
        """Return a link to a public name of dlx; other names stay code."""
        path = name[1].removeprefix("dlx.")
        first, *rest = path.split(".")
        value = getattr(dlx, first, None) if first in dlx.__all__ else None
        if value is None and hasattr(dlx.Tensor, first):
            path = f"Tensor.{path}"
        elif value is None or (rest and not hasattr(value, rest[0])):
            return name[0]
        return f"[`{name[1]}`][dlx.{path}]"
