"""`python -m dlx check TARGET`: what of DLPack's requirements a library meets.

`dlx.check` is imported when the command runs, because it imports NumPy.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dlx.cli import check_reports
from dlx.cli.command import CannotRun, Direct

if TYPE_CHECKING:
    from dlx.check import Report
    from dlx.check.deviations import Deviations, Judgement

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    try:
        from dlx import check
        from dlx.check import issue, pairs
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error}: pip install numpy") from None
    if args.explain:
        return check_reports.explain(args.explain, args.targets)
    if not args.targets:
        raise CannotRun("name a target: numpy, torch, ..., or package.module:factory")
    check_reports.demand(args)
    if args.write_deviations and len(args.targets) > 1:
        raise CannotRun("--write-deviations writes of one target: name one target")
    if args.bisect and args.in_process:
        raise CannotRun("--bisect needs processes: leave --in-process out")
    if args.bisect and any(map(check_reports.is_report, args.targets)):
        raise CannotRun("--bisect runs checks: name a target, and not a report")
    old = check_reports.read(args.compare) if args.compare else None
    try:
        checks = check.select(args.only, args.role, args.level, args.suite)
        known = _known(args)
    except check.CannotCheck as reason:
        raise CannotRun(str(reason)) from None
    if not checks:
        raise CannotRun("no check is selected")
    strict = _in_ci() if args.strict is None else args.strict
    code, reports = 0, list[check.Report]()
    accepted = dict[str, frozenset[str]]()
    for target in args.targets:
        report = check_reports.read(target) if check_reports.is_report(target) else None
        try:
            if report is None:
                with _progress(target, len(checks), args.in_process) as progress:
                    report = check.run(
                        target, checks, isolated=not args.in_process, progress=progress
                    )
            mine = known.of(report.header.target)
            judged = mine.judge(report)
            fails_nothing = judged.those("known") | judged.those("newer")
            if old is None:
                for line in describe(report, args.all, judged, mine.path, strict):
                    print(line)
                code = max(code, judged.exit_code(strict))
            else:
                code = max(code, check_reports.compare(old, report, fails_nothing))
            if mine.path != known.path:
                print(f"{known.path} is about {known.target}: it is left alone")
            for pair in pairs.pairs(target, report) if args.bisect else ():
                print(pair)
            if args.write_deviations:
                count = known.write(judged, report.header.target)
                print(f"entries added to {known.path}, for reasons and links: {count}")
        except check.CannotCheck as reason:
            raise CannotRun(str(reason)) from None
        reports.append(report)
        accepted[report.header.target] = fails_nothing
        if args.repros:
            folder = Path(args.repros, check_reports.folder(report))
            print(f"{issue.write(report, folder)} reproductions: {folder}")
    check_reports.write(args, reports, accepted)
    return code


def _known(args: argparse.Namespace) -> Deviations:
    """Read the deviations file that is named, written to, or found."""
    from dlx.check.deviations import Deviations, find

    new = args.write_deviations
    if new and args.deviations:
        raise CannotRun("--write-deviations reads FILE, too: leave --deviations out")
    known = (
        find(args.deviations or new, Path()) if not new or Path(new).exists() else None
    )
    known = known or Deviations(new)
    if known.path and not known.target and len(args.targets) > 1:
        raise CannotRun(f'{known.path}: says of no target; add target = "NAME" to it')
    return known


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def describe(
    report: Report,
    everything: bool,
    judged: Judgement,
    file: str = "",
    strict: bool = False,
) -> Iterator[str]:
    """Write a report in plain lines; what a deviations file knows, only if all is."""
    from dlx.check.reports.text import describe

    known, new = judged.those("known"), judged.those("newer")
    yield from describe(report, everything, known)
    if known:
        yield f"{len(known)} known: {file}"
    if new:
        yield f"{len(new)} by checks that are newer than the suite of {file}"
    if after := sum(result.only_after for result in report.results):
        yield f"{after} with another result only after others: --bisect finds the pairs"
    yield from judged.complaints
    grave = len(judged.those("fails"))
    if judged.those("error"):
        yield "exit 2: the suite itself failed, or an expression of the target"
    elif grave:
        but = f", that {file} does not know" if file else ""
        yield f"exit 1: {grave} deviations from a MUST, or with wrong results{but}"
    elif judged.complaints and strict:
        yield f"exit 1: {file} is not as --strict asks for"
    else:
        yield "exit 0: nothing fails the run"


@contextmanager
def _progress(
    target: str, total: int, in_process: bool
) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on a terminal that rich knows, and nothing elsewhere.

    In this process each check is named before it runs, because it may be the last.
    """
    if in_process:
        yield lambda check, done: print(check, file=sys.stderr, flush=True)
        return
    if find_spec("rich") is None:
        yield lambda check, done: None
        return
    from dlx.cli.terminal import progress_bar

    with progress_bar() as bar:
        bar.begin(total)
        yield lambda check, done: bar.step(f"{target} {check}")


def _configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "targets", nargs="*", metavar="TARGET", help="a name, or package.module:factory"
    )
    add("--only", type=lambda text: text.split(","), default=[], help="R59,consumer.*")
    add("--role", default="", choices=("producer", "consumer", "table"))
    add("--level", default="", choices=("must", "should", "conflict"))
    add("--suite", default="99", help="leave out checks that are newer than this suite")
    add("--deviations", metavar="FILE", help="what is known, and fails no run")
    add(
        "--strict",
        action=argparse.BooleanOptionalAction,
        help="refuse entries that are out of date, or lack a reason or a link "
        "(default: where CI is set)",
    )
    add("--write-deviations", metavar="FILE", help="add to it what fails the run")
    add("--in-process", action="store_true", help="isolate nothing, for a debugger")
    add(
        "--bisect", action="store_true", help="name pairs, of results only after others"
    )
    add("--all", action="store_true", help="print every deviation")
    add("--json", metavar="FILE", help="write the report as lines of JSON")
    add("--repros", metavar="DIR", help="write reproductions, and an issue to paste")
    add("--explain", metavar="CHECK", help="say what checks do; runs nothing")
    check_reports.configure(parser)


COMMAND = Direct(
    name="check",
    summary="what of DLPack's requirements a library meets",
    run=_run,
    configure=_configure,
)
"""The subcommand `check`."""
