"""What `check` does with a deviations file: options, reading, and its lines of text.

`Known` is a file and how strict it is; `Known.lines` end what is printed of a report.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlx_check.cli.command import CannotRun

if TYPE_CHECKING:
    from dlx_check.conformance.deviations import Deviations, Judgement
    from dlx_check.conformance.results import Report

__all__ = ["Known", "configure", "read"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--deviations", metavar="FILE", help="what is known, and fails no run")
    add(
        "--strict",
        action=argparse.BooleanOptionalAction,
        help="refuse entries that are out of date, or lack a reason or a link "
        "(default: where CI is set)",
    )
    add("--write-deviations", metavar="FILE", help="add to it what fails the run")


def read(args: argparse.Namespace) -> Known:
    """Read the file that is named, written to, or found.

    Raises `CannotRun` for options that make no sense together, and `CannotCheck` for a
    file that cannot be read.
    """
    from dlx_check.conformance.deviations import Deviations, find

    new: str | None = args.write_deviations
    if new and args.deviations:
        raise CannotRun("--write-deviations reads FILE, too: leave --deviations out")
    if new and len(args.targets) > 1:
        raise CannotRun("--write-deviations writes of one target: name one target")
    if new and not Path(new).exists():
        file = Deviations(new)
    else:
        file = find(args.deviations or new, Path())
    if file.path and not file.target and len(args.targets) > 1:
        raise CannotRun(f'{file.path}: says of no target; add target = "NAME" to it')
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return Known(file, in_ci if args.strict is None else args.strict, bool(new))


@dataclass(frozen=True)
class Known:
    """A deviations file, which may be the empty one, and what to do with it."""

    file: Deviations
    strict: bool
    writes: bool

    def judge(self, report: Report) -> Judgement:
        """Say what the results of a report mean; raise `CannotCheck`."""
        return self.file.judge(report)

    def lines(self, report: Report, judged: Judgement) -> Iterator[str]:
        """Say what the file does to a run, and how the run ends; write to the file."""
        from dlx_check.conformance.reports.text import verdict

        mine = self.file.of(report.header.target)
        if known := judged.those("known"):
            yield f"{len(known)} known: {mine.path}"
        if newer := judged.those("newer"):
            yield f"{len(newer)} by checks that are newer than the suite of {mine.path}"
        if after := sum(result.only_after for result in report.results):
            yield f"{after} with another result only after others: --bisect names pairs"
        yield from judged.complaints
        if mine.path != self.file.path:
            yield f"{self.file.path} is about {self.file.target}: it is left alone"
        if self.writes:
            count = self.file.write(judged, report.header.target)
            yield f"entries added to {mine.path}, for reasons and links: {count}"
        passes = not judged.exit_code(strict=False)
        if judged.complaints and self.strict and passes:
            yield f"exit 1: {mine.path} is not as --strict asks for"
        else:
            yield verdict(report, judged.those("known") | judged.those("newer"))
