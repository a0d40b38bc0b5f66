"""The command line: `python -m dlx info`, `demo`, `check`, `inspect`, `shm`.

A subcommand is a module of this package that defines `COMMAND` and is listed in
`COMMANDS` below.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlx_check.cli.command import CannotRun, Command, Direct, Silent
from dlx_check.cli.streams import Refused, open_closed, output
from dlx_check.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMANDS", "main"]

COMMANDS = ("info", "demo", "check", "inspect", "shm")
"""The subcommands' modules, in the order of the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: success. 1: the command found a problem. 2: it could not run.
    """
    open_closed()
    try:
        with contextlib.redirect_stdout(output()) as stdout:
            try:
                return _main(argv)
            finally:
                stdout.flush()
    except Refused as refused:
        # Whoever reads the output (`head`) may have seen enough.
        if not isinstance(error := refused.__cause__, BrokenPipeError):
            reason = getattr(error, "strerror", error)
            print(f"dlx: cannot write to standard output: {reason}", file=sys.stderr)
        return 1


def _main(argv: Sequence[str] | None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    command: Command[Any] | Direct = args.command
    try:
        return _run(command, args)
    except CannotRun as reason:
        print(f"dlx {command.name}: {reason}", file=sys.stderr)
        return 2
    except ImportError as error:
        if error.name not in ("dlx", "dlx_check._natives"):
            raise
        # No dlx or another's, or natives that were not built: it says what to do.
        print(f"dlx {command.name}: {error}", file=sys.stderr)
        return 2


def _run(command: Command[Any] | Direct, args: argparse.Namespace) -> int:
    if isinstance(command, Direct):
        return command.run(args)
    import_module("dlx_check.core")  # before a child fails for want of dlx
    if command.render is not None and not args.json:
        return _run_table(command, command.render, args)
    # Frameworks may print on import; stdout must hold only the document.
    with contextlib.redirect_stdout(sys.stderr):
        report = command.collect(args, Silent())
    print(json.dumps(dataclasses.asdict(report), indent=2) if args.json else report)
    return command.exit_code(report)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dlx",
        description="Zero-copy tensor exchange between Python array libraries.",
    )
    parser.add_argument("--version", action="version", version=f"dlx {__version__}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in COMMANDS:
        command: Command[Any] | Direct = import_module(f"{__name__}.{name}").COMMAND
        subparser = subparsers.add_parser(
            name, help=command.summary, description=command.summary
        )
        subparser.set_defaults(command=command)
        if isinstance(command, Command):
            subparser.add_argument(
                "--json", action="store_true", help="print one JSON document"
            )
        command.configure(subparser)
    return parser


def _run_table(
    command: Command[Any],
    render: Callable[[Any, Console], None],
    args: argparse.Namespace,
) -> int:
    from dlx_check.cli.terminal import open_console, progress_bar

    console = open_console()
    with contextlib.redirect_stdout(sys.stderr), progress_bar() as progress:
        report = command.collect(args, progress)
    render(report, console)
    return command.exit_code(report)
