"""`python -m dlx check TARGET`: what of DLPack's requirements a library meets.

`dlx.check` is imported when the command runs, because it imports NumPy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from dlx.cli import check_reports
from dlx.cli.command import CannotRun, Direct

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    try:
        from dlx import check
        from dlx.check import issue
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error}: pip install numpy") from None
    if args.explain:
        return check_reports.explain(args.explain, args.targets)
    if not args.targets:
        raise CannotRun("name a target: numpy, torch, ..., or package.module:factory")
    check_reports.demand(args)
    old = check_reports.read(args.compare) if args.compare else None
    checks = check.select(args.only, args.role, args.level, args.suite)
    if not checks:
        raise CannotRun("no check is selected")
    code, reports = 0, list[check.Report]()
    for target in args.targets:
        report = check_reports.read(target) if check_reports.is_report(target) else None
        try:
            if report is None:
                with _progress(target, len(checks)) as progress:
                    report = check.run(target, checks, progress=progress)
        except check.CannotCheck as reason:
            raise CannotRun(str(reason)) from None
        reports.append(report)
        code = max(code, check_reports.show(report, args.all, old))
        if args.repros:
            folder = Path(args.repros, check_reports.folder(report))
            print(f"{issue.write(report, folder)} reproductions: {folder}")
    check_reports.write(args, reports, {})
    return code


@contextmanager
def _progress(target: str, total: int) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on a terminal that rich knows, and nothing elsewhere."""
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
