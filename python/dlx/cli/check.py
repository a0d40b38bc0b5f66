"""`python -m dlx check TARGET`: what of DLPack's requirements a library meets.

`dlx.check` is imported when the command runs, because it imports NumPy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dlx.cli.command import CannotRun, Direct

if TYPE_CHECKING:
    from dlx.check import Report, Result

__all__ = ["COMMAND"]

_COLUMNS = ("meets", "deviates", "crashes", "hangs", "untestable", "fact", "error")
_ROLES = ("producer", "consumer", "table", "robustness")
_SHOWN = 12


def _run(args: argparse.Namespace) -> int:
    try:
        from dlx import check
        from dlx.check import issue
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error}: pip install numpy") from None
    if args.explain:
        return _explain(args.explain)
    if not args.targets:
        raise CannotRun("name a target: numpy, torch, ..., or package.module:factory")
    if args.json and len(args.targets) > 1:
        raise CannotRun("--json writes one report: name one target")
    checks = check.select(args.only, args.role, args.level, args.suite)
    if not checks:
        raise CannotRun("no check is selected")
    code, lines = 0, list[str]()
    for target in args.targets:
        try:
            with _progress(target, len(checks)) as progress:
                report = check.run(target, checks, progress=progress)
        except check.CannotCheck as reason:
            raise CannotRun(str(reason)) from None
        for line in describe(report, args.all):
            print(line)
        if args.repros:
            folder = Path(args.repros, report.header.target)
            print(f"{issue.write(report, folder)} reproductions: {folder}")
        lines += report.lines()
        code = max(code, report.exit_code)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    return code


def describe(report: Report, everything: bool) -> Iterator[str]:
    """Write a report in plain lines."""
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
    found = _sorted(report)
    shown = found if everything else found[:_SHOWN]
    if shown:
        yield ""
    for result in shown:
        yield from _lines(result)
    if len(found) > len(shown):
        yield f"... {len(found) - len(shown)} more: --all"
    grave = sum(result.fails_run for result in found)
    if any(result.result == "error" for result in report.results):
        yield "exit 2: the suite itself failed"
    elif grave:
        yield f"exit 1: {grave} deviations from a MUST, or with wrong results"


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
    add("--explain", metavar="CHECK", help="say what a check does; runs nothing")


COMMAND = Direct(
    name="check",
    summary="what of DLPack's requirements a library meets",
    run=_run,
    configure=_configure,
)
"""The subcommand `check`."""
