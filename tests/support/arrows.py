"""The arrows between files of Rust and of Python: who uses whom."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

# `src/stream/order.rs` is `("src", "stream", "order")`.
Name: TypeAlias = tuple[str, ...]
# Of two files the first uses the second.
Arrow: TypeAlias = tuple[Name, Name]
Files: TypeAlias = Mapping[Name, str]

_KEYWORDS = ("crate", "self", "super")


def leaves(tree: str) -> Iterator[str]:
    """Give the paths of a ``use`` tree."""
    stem, brace, rest = tree.partition("{")
    if not brace:
        yield tree.split(" as ")[0].strip()
        return
    parts, depth = [""], 0
    for letter in rest[: rest.rindex("}")]:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    for part in filter(str.strip, parts):
        yield from leaves(stem.strip() + part.strip())


class Crate:
    """The modules of a crate, named like their files, but the root without ``lib``."""

    def __init__(self, files: Files) -> None:
        """Read what each module re-exports."""
        self.code: dict[Name, str] = {}
        for name, text in files.items():
            code = re.sub(r"//[^\n]*", "", text).split("#[cfg(test)]\nmod tests {")[0]
            self.code[name[:1] if name[1:] == ("lib",) else name] = code
        self.exported: dict[Name, Name] = {}
        for module, code in self.code.items():
            for tree in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", code):
                for path in self.absolute(module, leaves(tree)):
                    self.exported[*module, path[-1]] = path

    def absolute(self, module: Name, paths: Iterable[str]) -> Iterator[Name]:
        """Give those paths in a module that lead into the crate, from its root."""
        for path in paths:
            parts = path.split("::")
            where = module[:1] if parts[0] == "crate" else module
            if parts[0] not in _KEYWORDS and (*module, parts[0]) not in self.code:
                continue
            while parts and parts[0] in _KEYWORDS:
                if parts.pop(0) == "super":
                    where = where[:-1] or where
            yield (*where, *parts)

    def named(self, module: Name) -> Iterator[Name]:
        """Give what the code of a module names, from the root of the crate."""
        code = self.code[module]
        use = r"\buse\s+((?:crate|self|super)::[^;]+);"
        found = [leaf for tree in re.findall(use, code) for leaf in leaves(tree)]
        code = re.sub(use, "", code)
        found += re.findall(r"\b(?:crate|self|super)(?:::\w+)+", code)
        for child in (name[-1] for name in self.code if name[:-1] == module):
            found += re.findall(rf"(?<![\w:]){child}::\w+", code)
        yield from self.absolute(module, found)

    def module_of(self, path: Name) -> Name:
        """Name the module that defines what a path leads to."""
        while path not in self.code:
            path = self.exported.get(path, path[:-1])
        return path

    def arrows(self) -> Iterator[Arrow]:
        """Give the arrows of ``use`` trees and of paths."""
        for user in self.code:
            for used in map(self.module_of, self.named(user)):
                if used != user:
                    yield file_of(user), file_of(used)


def file_of(module: Name) -> Name:
    """Name the file of a module of Rust."""
    return module if module[1:] else (*module, "lib")


def imported(user: Name, statement: ast.Import | ast.ImportFrom) -> Iterator[Name]:
    """Give what an import statement names."""
    stem: Name = ()
    if isinstance(statement, ast.ImportFrom):
        stem = user[: -statement.level] if statement.level else ()
        stem += tuple(filter(None, (statement.module or "").split(".")))
    for each in statement.names:
        yield (*stem, *each.name.split("."))


def found(path: Name, files: Files) -> Name | None:
    """Name the file that a path of Python leads to: a module, or a package's own."""
    while path:
        for file in (path, (*path, "__init__")):
            if file in files:
                return file
        path = path[:-1]
    return None


def python_arrows(files: Files) -> Iterator[Arrow]:
    """Give the arrows of import statements.

    These count wherever they stand. In a function they run later, and under
    ``TYPE_CHECKING`` never, but the file knows the other one all the same. Of a dotted
    name the last module counts, not the packages around it.

    A door of the core is a file that reaches an add-on by ``_door``, thus by name. What
    it imports of the add-on under ``TYPE_CHECKING`` does not count.
    """
    for user, code in files.items():
        tree = ast.parse(code)
        for_types = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for statement in node.body
            for inner in ast.walk(statement)
        }
        is_door = user[0] == "dlx" and re.search(r"\b_door\b", code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for used in (found(path, files) for path in imported(user, node)):
                    if used is None or used == user:
                        continue
                    if not (is_door and node in for_types and used[0] != "dlx"):
                        yield user, used


def arrows(files: Files) -> set[Arrow]:
    """Give all arrows between files."""
    rust = {name: text for name, text in files.items() if name[0] == "src"}
    python = {name: text for name, text in files.items() if name[0] != "src"}
    return {*Crate(rust).arrows(), *python_arrows(python)}


def written(name: Name) -> str:
    """Write the name of a file."""
    return "/".join(name)
