"""The interface of subcommands: collect a report, then render it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dlx_check.errors import described

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["CannotRun", "Command", "Direct", "Progress", "Silent", "one_line"]

Report = TypeVar("Report")


class CannotRun(Exception):
    """The command cannot run here; the one-line message says what to do."""


class Progress(Protocol):
    """Receives the progress of a command."""

    def begin(self, total: int) -> None:
        """Announce the number of steps."""

    def step(self, text: str) -> None:
        """Announce the next step; the previous one is done."""


class Silent:
    """A `Progress` that shows nothing."""

    def begin(self, total: int) -> None:
        """Ignore the announcement."""

    def step(self, text: str) -> None:
        """Ignore the step."""


def one_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its message."""
    # No character of it moves the cursor of a terminal.
    return "".join(each if each.isprintable() else "?" for each in described(error))


def _no_options(parser: argparse.ArgumentParser) -> None:
    """Leave the parser as it is."""


def _success(report: object) -> int:
    return 0


@dataclass(frozen=True)
class Command(Generic[Report]):
    """One subcommand. `Report` is a dataclass whose `asdict` is the JSON document."""

    name: str
    summary: str
    collect: Callable[[argparse.Namespace, Progress], Report]
    render: Callable[[Report, Console], None] | None = None
    """Draws tables with rich; None if ``str`` of the report is all."""
    exit_code: Callable[[Report], int] = _success
    configure: Callable[[argparse.ArgumentParser], None] = _no_options


@dataclass(frozen=True)
class Direct:
    """A subcommand that writes by itself, because it needs no rich."""

    name: str
    summary: str
    run: Callable[[argparse.Namespace], int]
    """Runs it and returns the exit code."""
    configure: Callable[[argparse.ArgumentParser], None] = _no_options
