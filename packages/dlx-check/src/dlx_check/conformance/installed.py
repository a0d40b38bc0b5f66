"""The version of a target: of the distribution that has installed its module."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast

__all__ = ["version"]

Target: TypeAlias = Any
"""A `dlx_check.Target`, whose module imports this one."""


def version(target: Target) -> str:
    """Return the version of a target whose imports have run, or "unknown".

    A distribution that merely has the target's name may be another project's.
    """
    if target.distribution:
        try:
            return metadata.version(target.distribution)
        except metadata.PackageNotFoundError:
            pass  # builds for a device have distributions of their own
    module = _module(target)
    if module is None:
        return "unknown"
    if (found := _owner(module)) is not None:
        return found
    name = module.__name__
    while name:
        said = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(said, str):
            return said
        name = name.rpartition(".")[0]
    return "unknown"


def _module(target: Target) -> ModuleType | None:
    """Return the library's module: that of its name, of a function, or the only one."""
    found = dict(_imported(target))
    for length in (None, 1):
        for name, module in found.items():
            if _same(".".join(name.split(".")[:length]), target.name):
                return module
    for expression in (target.type, target.make, target.take):
        value: Any = expression
        if isinstance(expression, str):
            first = re.match(r"(?:lambda \w+: )?([A-Za-z_]\w*)", expression)
            value = target.names.get(first[1]) if first else None
        if not isinstance(value, ModuleType):
            value = sys.modules.get(str(getattr(value, "__module__", "")))
        if value in found.values():
            return cast("ModuleType", value)
    return next(iter(found.values())) if len(found) == 1 else None


def _same(one: str, other: str) -> bool:
    """Return whether two names are one, as pip compares them."""
    return re.sub(r"[-_.]+", "-", one).lower() == re.sub(r"[-_.]+", "-", other).lower()


def _imported(target: Target) -> Iterator[tuple[str, ModuleType]]:
    """Give the modules that the target imports, but for Python's own and NumPy."""
    names: list[str] = []
    for node in ast.walk(ast.parse(target.imports)):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = [f"{node.module}.{each.name}" for each in node.names]
            names += [each for each in parts if each in sys.modules] or [node.module]
    for name in names:
        top = name.partition(".")[0]
        ours = top not in sys.stdlib_module_names and top != "numpy"
        if (ours or _same(name, target.name)) and name in sys.modules:
            yield name, sys.modules[name]


def _owner(module: ModuleType) -> str | None:
    """Return the version of the distribution that has a module.

    That lists its file, for others may have parts of the same namespace. One that is
    editable lists nothing of the package that it names.
    """
    file = Path(getattr(module, "__file__", None) or "")
    names = module.__name__.split(".")
    own = "/".join(file.parts[-len(names) - (file.stem == "__init__") :])
    editable = set()  # a folder may stand in sys.path twice
    for each in metadata.distributions():
        record = each.read_text("RECORD") or ""
        listed = f"\n{own}," in f"\n{record}"
        if listed and _is_file(Path(str(each.locate_file(own))), file):
            return each.version
        tops = (each.read_text("top_level.txt") or "").split()
        if names[0] in tops and f"\n{names[0]}/" not in f"\n{record}":
            editable.add(each.version)
    return editable.pop() if len(editable) == 1 else None


def _is_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
