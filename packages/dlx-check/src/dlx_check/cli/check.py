"""`python -m dlx check TARGET`: what of DLPack's requirements a library meets.

`dlx_check.conformance` is imported when the command runs, because it imports NumPy.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from dlx_check.cli import check_known, check_reports
from dlx_check.cli.command import CannotRun, Direct

__all__ = ["COMMAND"]

_ROLES = ("producer", "consumer", "table", "streams", "related")


def _run(args: argparse.Namespace) -> int:
    try:
        from dlx_check import conformance as check
        from dlx_check.conformance import issue, pairs
        from dlx_check.conformance.driver import VARIABLE
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error}: pip install numpy") from None
    if args.explain:
        return check_reports.explain(args.explain, args.targets)
    if not args.targets:
        raise CannotRun("name a target: numpy, torch, ..., or package.module:factory")
    check_reports.demand(args)
    if args.driver:
        if not Path(args.driver).is_file():
            raise CannotRun(f"no driver {args.driver}")
        os.environ[VARIABLE] = str(Path(args.driver).resolve())
    old = check_reports.read(args.compare) if args.compare else None
    if old is not None and args.write_deviations:
        raise CannotRun("--compare is of two reports: leave --write-deviations out")
    if args.bisect and args.in_process:
        raise CannotRun("--bisect needs processes: leave --in-process out")
    if args.bisect and any(map(check_reports.is_report, args.targets)):
        raise CannotRun("--bisect runs checks: name no report")
    try:
        checks = check.select(args.only, args.role, args.level, args.suite)
        known = check_known.read(args)
    except check.CannotCheck as reason:
        raise CannotRun(str(reason)) from None
    if not checks:
        raise CannotRun("no check is selected")
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
            judged = known.judge(report)
            fails_nothing = judged.those("known") | judged.those("newer")
            accepted[report.header.target] = fails_nothing
            known_here = judged.those("known") if old is None else fails_nothing
            changes = check_reports.show(report, args.all, old, known_here)
            for pair in pairs.pairs(target, report) if args.bisect else ():
                print(pair)
            for line in known.lines(report, judged) if old is None else ():
                print(line)
        except check.CannotCheck as reason:
            raise CannotRun(str(reason)) from None
        reports.append(report)
        code = max(code, judged.exit_code(known.strict) if old is None else changes)
        if args.repros:
            folder = Path(args.repros, check_reports.folder(report))
            print(f"{issue.write(report, folder)} reproductions: {folder}")
    check_reports.write(args, reports, accepted)
    return code


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
    from dlx_check.cli.terminal import progress_bar

    with progress_bar() as bar:
        bar.begin(total)
        yield lambda check, done: bar.step(f"{target} {check}")


def _configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "targets", nargs="*", metavar="TARGET", help="a name, or package.module:factory"
    )
    add(
        "--only",
        metavar="CHECKS",
        type=lambda text: text.split(","),
        default=[],
        help="run these: names, patterns, requirements, as in 'R59,consumer.*'",
    )
    add("--role", default="", choices=_ROLES, help="run the checks of this role")
    add(
        "--level",
        default="",
        choices=("must", "should", "conflict"),
        help="run those of this level; conflict: sources that contradict each other",
    )
    add(
        "--suite",
        metavar="VERSION",
        default="99",
        help="leave out checks that are newer than this suite",
    )
    add(
        "--all",
        action="store_true",
        help="print also what is known, the facts, and why checks are untestable",
    )
    add("--json", metavar="FILE", help="write the report as lines of JSON")
    add("--repros", metavar="DIR", help="write reproductions, and an issue to paste")
    add("--driver", metavar="FILE", help="a simulated driver, for streams.simulated.*")
    add("--explain", metavar="CHECKS", help="say what checks do; runs nothing")
    add("--in-process", action="store_true", help="isolate nothing, for a debugger")
    add(
        "--bisect",
        action="store_true",
        help="name the earlier check on which a result depends",
    )
    check_known.configure(parser)
    check_reports.configure(parser)


COMMAND = Direct(
    name="check",
    summary="what of DLPack's requirements a library meets",
    run=_run,
    configure=_configure,
)
"""The subcommand `check`."""
