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

from dlx.cli import check_known
from dlx.cli.command import CannotRun, Direct

if TYPE_CHECKING:
    from dlx.check import Report, Result

__all__ = ["COMMAND"]

_COLUMNS = ("meets", "deviates", "crashes", "hangs", "untestable", "fact", "error")
_ROLES = ("producer", "consumer", "table", "streams", "related", "robustness")
_SHOWN = 12


def _run(args: argparse.Namespace) -> int:
    try:
        from dlx import check
        from dlx.check import issue, pairs
        from dlx.check.driver import VARIABLE
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error}: pip install numpy") from None
    if args.explain:
        return _explain(args.explain)
    if not args.targets:
        raise CannotRun("name a target: numpy, torch, ..., or package.module:factory")
    if args.driver:
        if not Path(args.driver).is_file():
            raise CannotRun(f"no driver {args.driver}")
        os.environ[VARIABLE] = str(Path(args.driver).resolve())
    if args.json and len(args.targets) > 1:
        raise CannotRun("--json writes one report: name one target")
    if args.bisect and args.in_process:
        raise CannotRun("--bisect needs processes: leave --in-process out")
    try:
        checks = check.select(args.only, args.role, args.level, args.suite)
        known = check_known.read(args)
    except check.CannotCheck as reason:
        raise CannotRun(str(reason)) from None
    if not checks:
        raise CannotRun("no check is selected")
    code, lines = 0, list[str]()
    for target in args.targets:
        try:
            with _progress(target, len(checks), args.in_process) as progress:
                report = check.run(
                    target, checks, isolated=not args.in_process, progress=progress
                )
            judged = known.judge(report)
            for line in describe(report, args.all, judged.those("known")):
                print(line)
            for pair in pairs.pairs(target, report) if args.bisect else ():
                print(pair)
            for line in known.lines(report, judged):
                print(line)
        except check.CannotCheck as reason:
            raise CannotRun(str(reason)) from None
        if args.repros:
            folder = Path(args.repros, report.header.target)
            print(f"{issue.write(report, folder)} reproductions: {folder}")
        lines += report.lines()
        code = max(code, judged.exit_code(known.strict))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    return code


def describe(
    report: Report, everything: bool, known: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Write a report in plain lines; what is known only if `everything` is asked."""
    head, counts = report.header, report.counts
    yield (
        f"{head.target} {head.version}, suite {head.suite} (DLPack 1.3), CPU; "
        f"{head.checks} checks in {report.seconds:.1f} s"
    )
    yield ""
    used = [c for c in _COLUMNS if any(c in found for found in counts.values())]
    yield " " * 10 + "".join(f"{name:>12}" for name in used)
    for role in _ROLES:
        if role in counts:
            numbers = (counts[role].get(name, 0) or "-" for name in used)
            yield f"{role:10}" + "".join(f"{number:>12}" for number in numbers)
    found = [r for r in _sorted(report) if everything or r.check not in known]
    shown = found if everything else found[:_SHOWN]
    if shown:
        yield ""
    for result in shown:
        yield from _lines(result)
    if len(found) > len(shown):
        yield f"... {len(found) - len(shown)} more: --all"


def _sorted(report: Report) -> list[Result]:
    from dlx.check.suite.row import EFFECTS

    found = [
        result
        for result in report.results
        if result.result in ("deviates", "crashes", "hangs", "error")
    ]
    return sorted(
        found,
        key=lambda result: (
            not result.fails_run,
            result.stimulus == "malformed",
            EFFECTS.index(result.effect),
        ),
    )


def _lines(result: Result) -> Iterator[str]:
    level = "ROBUSTNESS" if result.stimulus == "malformed" else result.level.upper()
    names = " ".join(result.requirements)
    derived = ", derived" if result.derived else ""
    yield f"{level:10} {result.check}  {result.result}: {result.text}"
    yield f"{'':10} {names}{derived} ({result.source}): {result.statement}"


def _explain(name: str) -> int:
    from dlx.check.requirements import requirements
    from dlx.check.suite import CHECKS

    check = next((check for check in CHECKS if check.id == name), None)
    if check is None:
        raise CannotRun(f"no check {name!r}")
    print(f"{check.id} ({check.level}, {check.stimulus} stimulus)")
    print(f"expects that {check.expects.text}")
    print(f"does: {check.experiment}")
    for each in check.requirements.split():
        found = requirements()[each]
        print(f"{each}, {found.source}: {found.statement}")
    return 0


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
    add("--role", default="", choices=_ROLES[:-1])
    add("--level", default="", choices=("must", "should", "conflict"))
    add("--suite", default="99", help="leave out checks that are newer than this suite")
    add("--all", action="store_true", help="print every deviation")
    add("--json", metavar="FILE", help="write the report as lines of JSON")
    add("--repros", metavar="DIR", help="write reproductions, and an issue to paste")
    add("--driver", metavar="FILE", help="a simulated driver, for streams.simulated.*")
    add("--explain", metavar="CHECK", help="say what a check does; runs nothing")
    add("--in-process", action="store_true", help="isolate nothing, for a debugger")
    add(
        "--bisect", action="store_true", help="name pairs, of results only after others"
    )
    check_known.configure(parser)


COMMAND = Direct(
    name="check",
    summary="what of DLPack's requirements a library meets",
    run=_run,
    configure=_configure,
)
"""The subcommand `check`."""
