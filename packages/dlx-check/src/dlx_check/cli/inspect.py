"""`python -m dlx inspect`: what DLPack says of one object."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from dlx_check.cli.command import CannotRun, Command, Progress, one_line

if TYPE_CHECKING:
    from dlx_check.inspection.records import Inspection

__all__ = ["COMMAND"]


def _collect(args: argparse.Namespace, progress: Progress) -> Inspection:
    from dlx_check.inspection import inspect

    module, colon, expression = args.target.partition(":")
    if not (module and colon and expression.strip()):
        raise CannotRun(
            f"{args.target!r} names no object: expected MODULE:EXPRESSION, "
            "as in 'torch:ones(3)'"
        )
    try:
        names = dict(vars(import_module(module)))
        x = eval(expression.strip(), names)
    except (Exception, SystemExit) as error:
        raise CannotRun(f"{args.target}: {one_line(error)}") from None
    return inspect(x, exports=args.exports)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="MODULE:EXPRESSION",
        help="an expression in the names of a module: 'torch:ones(3)', 'numpy:ndarray'",
    )
    parser.add_argument(
        "--no-exports",
        dest="exports",
        action="store_false",
        help="export nothing: shows the protocols and the table alone",
    )


COMMAND = Command(
    name="inspect",
    summary="what DLPack says of one tensor, type, capsule or stream",
    collect=_collect,
    configure=_configure,
)
"""The subcommand `inspect`."""
