"""`python -m dlx info`: versions, and who publishes an exchange table."""

from __future__ import annotations

import argparse
import platform
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dlx_check.cli.child import Ended, in_child
from dlx_check.cli.command import Command, Progress, one_line
from dlx_check.cli.frameworks import FRAMEWORKS, Framework

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]


@dataclass(frozen=True)
class Table:
    """An exchange table: where it is, and what its header says."""

    address: str
    version: str
    attribute: str
    library: str | None
    """The file that the table is in."""


@dataclass
class TensorType:
    """A tensor type and the exchange table that it publishes."""

    name: str
    table: Table | None


@dataclass
class Found:
    """Facts about one framework."""

    name: str
    installed: bool
    version: str | None = None
    importable: bool | None = None
    error: str | None = None
    """Why it cannot be imported, or what else is broken."""
    types: list[TensorType] = field(default_factory=list)


@dataclass
class Info:
    """The document that `info --json` prints."""

    dlx: str
    dlpack: str
    exchange_table: str
    python: str
    platform: str
    frameworks: list[Found]


def _collect(args: argparse.Namespace, progress: Progress) -> Info:
    from dlx_check.core import dlx

    table = _table_of(dlx.Tensor)
    if table is None:
        raise AssertionError("dlx.Tensor publishes no exchange table")
    progress.begin(len(FRAMEWORKS))
    found = []
    for framework in FRAMEWORKS:
        progress.step(f"looking for {framework.name}")
        found.append(_look_at(framework, load=args.load))
    return Info(
        dlx=dlx.__version__,
        dlpack=table.version,
        exchange_table=table.address,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        frameworks=found,
    )


def _look_at(framework: Framework, *, load: bool) -> Found:
    if not framework.is_installed():
        return Found(framework.name, installed=False)
    found = Found(framework.name, installed=True)
    try:
        found.version = framework.version()
    except ValueError as error:
        found.error = f"its metadata cannot be read: {error}"
    if not load:
        return found
    try:
        # In a child, because some libraries crash a process that has loaded another.
        facts = in_child(__name__, "look", framework.name)
    except Ended as end:
        facts = {"error": str(end)}
    found.importable = "error" not in facts
    found.error = facts.get("error", found.error)
    found.version = found.version or facts.get("version")
    found.types = [
        TensorType(name, Table(**table) if table else None)
        for name, table in facts.get("types", ())
    ]
    return found


def _table_of(tensor_type: type) -> Table | None:
    from dlx_check.inspection import inspect

    found = inspect(tensor_type).table
    if found is None or found.version is None:
        return None
    where, version = found.location, "{}.{}".format(*found.version)
    return Table(hex(where.address), version, str(found.attribute), where.library)


def look(progress: Progress, name: str) -> dict[str, Any]:
    """Import a framework; return its types and their tables, or the error."""
    framework = next(each for each in FRAMEWORKS if each.name == name)
    try:
        module = framework.load()
        types = [
            (name, asdict(table) if (table := _table_of(each)) else None)
            for name, each in framework.types()
        ]
        version = getattr(module, "__version__", None)
    except BaseException as error:  # a broken installation is a fact to report
        return {"error": one_line(error)}
    return {"types": types, "version": version if type(version) is str else None}


def _render(info: Info, console: Console) -> None:
    from dlx_check.cli.rendering import Table as Grid
    from dlx_check.cli.rendering import box, escape

    facts = Grid.grid(padding=(0, 2))
    for label, value in (
        ("dlx", info.dlx),
        ("DLPack", info.dlpack),
        ("exchange table", f"{info.exchange_table} (dlx.Tensor)"),
        ("Python", info.python),
        ("platform", info.platform),
    ):
        facts.add_row(f"[bold]{label}[/bold]", escape(value))
    console.print(facts)

    grid = Grid(box=box.SIMPLE_HEAD)
    for header in ("framework", "version", "tensor type", "exchange table"):
        grid.add_column(header, no_wrap=header != "exchange table")
    for found in info.frameworks:
        name, version = escape(found.name), escape(found.version or "?")
        if not found.installed:
            grid.add_row(name, "not installed", "", "", style="dim")
        elif found.importable is None:
            grid.add_row(name, version, "", "not imported")
        elif not found.importable:
            error = escape(f"import failed: {found.error}")
            grid.add_row(name, version, "", error, style="yellow")
        elif not found.types:
            grid.add_row(name, version, "", "no tensor type found")
        if found.importable is not False and found.error:
            grid.add_row(name, version, "", escape(found.error), style="yellow")
        for index, each in enumerate(found.types):
            first = (name, version) if index == 0 else ("", "")
            grid.add_row(*first, escape(each.name), _describe(each.table))
    console.print(grid)


def _describe(table: Table | None) -> str:
    if table is None:
        return "no"
    from dlx_check.cli.rendering import escape

    name = "" if table.attribute == "__dlpack_c_exchange_api__" else ", old name"
    library = PurePath(table.library or "generated code").name
    return f"[green]DLPack {table.version} in {escape(library)}{name}[/green]"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-import",
        dest="load",
        action="store_false",
        help="do not import the frameworks: faster, but says nothing of their tables",
    )


COMMAND = Command(
    name="info",
    summary="versions, and which frameworks publish an exchange table",
    collect=_collect,
    render=_render,
    configure=_configure,
)
"""The subcommand `info`."""
