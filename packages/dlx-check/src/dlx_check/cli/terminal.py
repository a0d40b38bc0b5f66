"""Terminal output shared by the subcommands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlx_check.cli.command import Progress as Steps
from dlx_check.cli.command import Silent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["mark", "open_console", "progress_bar"]

# Wide enough for every table here, so that a log file or a pipe loses no text.
_PLAIN_WIDTH = 120


def open_console() -> Console:
    """Return the console for stdout: rich's, or one of plain text."""
    from dlx_check.cli.rendering import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PLAIN_WIDTH
    return console


def mark(good: bool, console: Console) -> str:
    """Return a tick or a cross, as words where the output cannot encode them."""
    if console.encoding.lower().startswith("utf"):
        return "✓" if good else "✗"
    return "yes" if good else "NO"


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._steps = 0

    def begin(self, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task("", total=total, visible=False)
        self._steps = 0

    def step(self, text: str) -> None:
        if self._task is not None:
            self._progress.update(
                self._task,
                description=text,
                completed=self._steps,
                visible=True,
                refresh=True,
            )
        self._steps += 1


@contextmanager
def progress_bar() -> Iterator[Steps]:
    """Show a bar on stderr while the block runs, if rich is there and a terminal."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        yield Silent()
        return

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[progress.description]{task.description}"),
    )
    # No refresh thread: it would take the GIL during a measurement.
    with Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        disable=not console.is_terminal,
    ) as progress:
        yield _Bar(progress)
