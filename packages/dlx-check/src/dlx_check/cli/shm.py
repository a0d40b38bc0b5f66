"""`python -m dlx shm`: names of shared memory, and those that killed owners left."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlx_check.cli.command import CannotRun, Command, Progress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]


@dataclass
class Name:
    """A name of this user."""

    name: str
    path: str
    state: str
    """``held`` by its owner, ``left`` by one that is gone, or ``removed`` now."""
    pid: int | None
    shape: list[int] | None
    dtype: str | None


@dataclass
class Names:
    """The document that `shm --json` prints."""

    names: list[Name]


def _collect(args: argparse.Namespace, progress: Progress) -> Names:
    if sys.platform != "linux":
        raise CannotRun("dlx shares memory between processes on Linux only")
    try:
        from dlx_share.sharing._names import entries, withdraw
    except ModuleNotFoundError as error:
        if error.name != "dlx_share":
            raise
        raise CannotRun(
            "python -m dlx shm needs dlx-share, which is not installed; install it "
            "from the checkout of dlx: pip install ./packages/dlx-share"
        ) from None

    names = []
    for entry in entries():
        state, d = "held" if entry.is_held else "left", entry.described
        # An owner that has come meanwhile keeps its name.
        if args.clean and not entry.is_held and withdraw(entry.path):
            state = "removed"
        fields = (d.pid, list(d.shape), d.dtype.name) if d else (None,) * 3
        names.append(Name(entry.name, entry.path, state, *fields))
    return Names(names)


def _render(names: Names, console: Console) -> None:
    from dlx_check.cli.rendering import Table, box, escape

    if not names.names:
        console.print("no names of shared memory")
        return
    grid = Table(box=box.SIMPLE_HEAD)
    for header in ("name", "state", "PID", "dtype", "shape"):
        grid.add_column(header, no_wrap=True)
    for each in names.names:
        told = each.dtype or "?", str(each.shape or "?"), str(each.pid or "?")
        dtype, shape, pid = map(escape, told)
        grid.add_row(escape(each.name), each.state, pid, dtype, shape)
    console.print(grid)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clean", action="store_true", help="remove names whose owners were killed"
    )


COMMAND = Command(
    name="shm",
    summary="names of shared memory, and those that killed owners left",
    collect=_collect,
    render=_render,
    configure=_configure,
)
"""The subcommand `shm`."""
