"""The rooms of the crate and of the Python products: arrows run down, in no circle."""

from __future__ import annotations

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeAlias

import pytest
from support.arrows import Arrow, Files, Name, arrows, leaves, written

ROOT = Path(__file__).parents[2]
# By the first part of their files' names.
PRODUCTS = {
    "src": ROOT / "src",
    "dlx_check": ROOT / "packages/dlx-check/src/dlx_check",
    "dlx_share": ROOT / "packages/dlx-share/src/dlx_share",
    "dlx": ROOT / "python/dlx",
}
# Between add-ons; a command imports it when it runs.
EXCEPTION = (("dlx_check", "cli", "shm"), ("dlx_share", "sharing", "_names"))

Floors: TypeAlias = dict[str, list[list[str]]]


def read(product: str) -> Files:
    """Read the files of a product."""
    folder = PRODUCTS[product]
    return {
        (product, *path.relative_to(folder).with_suffix("").parts): path.read_text()
        for path in folder.rglob("*")
        if path.suffix in (".rs", ".py", ".pyi")
    }


def order(design: str) -> Floors:
    """Read the rooms from the pictures in `docs/design.md`, the top ones first.

    The line of a room has its files, two spaces or more, and what it is. In the picture
    of Python, a line with the name of a product is followed by those of its rooms.
    """
    _, crate, _, python, *_ = design.split("## The rooms")[1].split("```")
    product, floors = "src", Floors()
    for line in (crate + python).splitlines():
        if line in PRODUCTS:
            product = line
        elif line.strip():
            files = re.split("  +", line.strip())[0].split()
            floors.setdefault(product, []).append(files)
    return floors


def up(arrows: Iterable[Arrow], floors: Floors) -> list[str]:
    """Write the arrows to a room above, and those to a product that is not below."""

    def floor(file: Name) -> int:
        return next(n for n, files in enumerate(floors[file[0]]) if file[1] in files)

    return [
        f"{written(user)} uses {written(used)}"
        for user, used in sorted(arrows)
        if (
            floor(used) < floor(user)
            if user[0] == used[0]
            else used[0] != "dlx" and (user, used) != EXCEPTION
        )
    ]


def circle(arrows: Iterable[Arrow]) -> str:
    """Write a circle, of files in one folder or of such folders, if there is one.

    An arrow counts where the ways to its files part. So there is none between a file of
    Rust and those in the folder of its name.
    """
    graph: dict[Name, set[Name]] = {}
    for user, used in arrows:
        for at, (one, other) in enumerate(zip(user, used, strict=False), 1):
            if one != other:
                graph.setdefault(user[:at], set()).add(used[:at])
                break
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " uses ".join(map(written, reversed(error.args[1])))
    return ""


FLOORS = order((ROOT / "docs/design.md").read_text())
FILES = {name: text for product in PRODUCTS for name, text in read(product).items()}
ARROWS = arrows(FILES)


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_file_is_in_a_room(product: str) -> None:
    files = {name[1] for name in FILES if name[0] == product}
    assert files == {file for room in FLOORS[product] for file in room}


def test_no_room_uses_one_above_it() -> None:
    assert not up(ARROWS, FLOORS)


def test_no_files_use_each_other_in_a_circle() -> None:
    assert not circle(ARROWS)


@pytest.mark.parametrize(
    "arrow",
    [
        ("src/api/from_dlpack", "src/import/ladder"),
        ("src/stream/order", "src/stream/handle"),  # `stream` re-exports part of it
        ("dlx/_functions/bridge", "dlx/_functions/bridged"),  # in a function
        ("dlx/_functions/bridged_out", "dlx/_functions/kind"),  # for types
        ("dlx_share/pickling", "dlx/__init__"),
        (*map(written, EXCEPTION),),
    ],
)
def test_an_arrow_is_found(arrow: tuple[str, str]) -> None:
    assert arrow in {(written(user), written(used)) for user, used in ARROWS}


def test_every_leaf_of_a_use_tree_is_found() -> None:
    assert list(leaves("crate::a::{self, b::{c, d}, e as f}")) == [
        "crate::a::self",
        "crate::a::b::c",
        "crate::a::b::d",
        "crate::a::e",
    ]


PICTURES = """## The rooms
```
lib        the root
high       above
low        below
```
```
dlx_check
  high     above
  low      below
dlx_share
  high     alone
dlx
  high     above
  low same below
```
"""


def planted(files: dict[str, str]) -> set[Arrow]:
    """Give the arrows of files whose names are written."""
    return arrows({tuple(name.split("/")): text for name, text in files.items()})


FOR_TYPES = "if TYPE_CHECKING:\n    from {} import x"


@pytest.mark.parametrize(
    ("user", "text", "used"),
    [
        ("src/low", "use crate::{high::X, low::Y};", "src/high"),
        ("src/low/deep/down", "fn f() { crate::high::f() }", "src/high"),
        ("src/low", "use super::re_exported;", "src/high"),
        ("src/low", "use crate::defined_there;", "src/lib"),
        ("dlx/low", "from . import high", "dlx/high"),
        ("dlx/low", "import dlx.high as h", "dlx/high"),
        ("dlx/same", "def f():\n    from .high import x", "dlx/high"),
        ("dlx/same", FOR_TYPES.format("dlx.high"), "dlx/high"),
        ("dlx_check/low/deep", "from ..high import x", "dlx_check/high"),
        ("dlx/high", "import dlx_check.high", "dlx_check/high"),
        ("dlx/high", FOR_TYPES.format("dlx_share.high"), "dlx_share/high"),
        ("dlx/high", "_door(); import dlx_share.high", "dlx_share/high"),
        ("dlx_check/high", "import dlx_share.high", "dlx_share/high"),
        ("dlx_share/high", "import dlx_check.high", "dlx_check/high"),
    ],
)
def test_an_arrow_that_runs_up_is_seen(user: str, text: str, used: str) -> None:
    files = dict.fromkeys(["src/high", "dlx/high", "dlx_share/high"], "")
    files |= {"src/lib": "pub(crate) use high::re_exported;", "dlx_check/high": ""}
    seen = up(planted(files | {user: text}), order(PICTURES))
    assert seen == [f"{user} uses {used}"]


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ("src/high", "use crate::low::X;"),
        ("dlx/high", "from .low import x"),
        ("dlx/same", "from .low import x"),
        ("dlx_share/high", "import dlx.high"),
        ("dlx/high", "_door()\n" + FOR_TYPES.format("dlx_share.high")),
    ],
)
def test_an_arrow_that_runs_down_is_none_that_runs_up(user: str, text: str) -> None:
    files = dict.fromkeys(["src/lib", "src/low", "dlx/low", "dlx/high"], "")
    files |= {"dlx_share/high": ""}
    assert not up(planted(files | {user: text}), order(PICTURES))


CIRCLES = {
    "in a room of the crate": {
        "src/a": "mod b; mod c;",
        "src/a/b": "use super::c::X;",
        "src/a/c": "fn f(_: crate::a::b::Y) {}",
    },
    "by what is re-exported": {
        "src/a": "mod b; mod c; pub(crate) use b::Y; pub use c::X;",
        "src/a/b": "use super::X;",
        "src/a/c": "use crate::a::Y;",
    },
    "in a room of Python": {
        "dlx/a/__init__": "",
        "dlx/a/b": "from .c import x",
        "dlx/a/c": "def f():\n    from dlx.a import b",
    },
    "for types": {
        "dlx/a/b": "from .c import x",
        "dlx/a/c": FOR_TYPES.format("dlx.a.b"),
    },
    "of a package and its module": {
        "dlx/a/__init__": "from .b import x",
        "dlx/a/b": "from dlx.a import y",
    },
    "of folders": {
        "dlx/a/b/one": "from ..c import two",
        "dlx/a/b/other": "",
        "dlx/a/c/two": "",
        "dlx/a/c/another": "from ..b import other",
    },
}


@pytest.mark.parametrize("files", CIRCLES.values(), ids=CIRCLES)
def test_a_circle_is_seen(files: dict[str, str]) -> None:
    assert re.fullmatch("(.*) uses .* uses \\1", circle(planted(files)))


def test_a_file_of_rust_and_those_in_its_folder_may_use_each_other() -> None:
    files = {"src/a": "mod b; fn f() { b::g() }", "src/a/b": "use super::f;"}
    assert planted(files) == {
        (("src", "a"), ("src", "a", "b")),
        (("src", "a", "b"), ("src", "a")),
    }
    assert not circle(planted(files))
