"""The rooms of ``src/``: arrows run down, and nowhere in a circle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
Module = tuple[str, ...]


def order() -> list[str]:
    """Read the rooms from the picture in ``docs/design.md``, the top one first."""
    design = (ROOT / "docs/design.md").read_text()
    picture = design.split("## The rooms")[1].split("```")[1]
    return [line.split()[0] for line in picture.strip().splitlines()]


def module_of(path: Path) -> Module:
    """Name the module of a file."""
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return () if parts == ("lib",) else parts


MODULES = {module_of(path): path for path in SOURCES.rglob("*.rs")}


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


def paths(module: Module) -> Iterator[Module]:
    """Give what the code of a module names, from the root of the crate."""
    code = re.sub(r"//[^\n]*", "", MODULES[module].read_text())
    code = code.split("#[cfg(test)]\nmod tests {")[0]
    found: list[str] = []
    for tree in re.findall(r"\buse\s+((?:crate|self|super)::[^;]+);", code):
        found += leaves(tree)
    code = re.sub(r"\buse\s+(?:crate|self|super)::[^;]+;", "", code)
    found += re.findall(r"\b(?:crate|self|super)(?:::\w+)+", code)
    children = [m[-1] for m in MODULES if m[:-1] == module and m != module]
    for child in children:
        found += [
            f"self::{name}" for name in re.findall(rf"(?<![\w:]){child}::\w+", code)
        ]
    for path in found:
        parts = path.split("::")
        where = () if parts[0] == "crate" else module
        while parts and parts[0] in ("crate", "self", "super"):
            where = where[:-1] if parts.pop(0) == "super" else where
        yield (*where, *parts)


def arrows() -> Iterator[tuple[Module, Module]]:
    """Give the pairs of modules of which the first uses the second."""
    for module in MODULES:
        for path in paths(module):
            while path not in MODULES:
                path = path[:-1]
            if path != module:
                yield module, path


def room(module: Module) -> str:
    """Name the room that a module is in."""
    return module[0] if module else "lib"


def test_every_file_is_in_a_room() -> None:
    assert {room(module) for module in MODULES} == set(order())


def test_no_room_uses_one_above_it() -> None:
    floors = order()
    up = [
        f"{'::'.join(user)} uses {'::'.join(used) or 'lib'}"
        for user, used in arrows()
        if floors.index(room(used)) < floors.index(room(user))
    ]
    assert not up


def test_no_files_use_each_other_in_a_circle() -> None:
    """A module and those below it count as one: they are private parts of it."""
    graph: dict[Module, set[Module]] = {}
    for user, used in arrows():
        if user[:2] != used[:2]:
            graph.setdefault(user[:2], set()).add(used[:2])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join("::".join(module) for module in error.args[1])
        raise AssertionError(circle) from None


def test_an_arrow_that_runs_up_is_seen() -> None:
    assert list(leaves("crate::a::{self, b::{c, d}, e as f}")) == [
        "crate::a::self",
        "crate::a::b::c",
        "crate::a::b::d",
        "crate::a::e",
    ]
    assert (("api", "from_dlpack"), ("import", "ladder")) in set(arrows())
