"""What `check` does with reports: options, files, comparisons, explanations."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlx_check.cli.command import CannotRun

if TYPE_CHECKING:
    from dlx_check.conformance.results import Report

__all__ = [
    "configure",
    "demand",
    "explain",
    "folder",
    "is_report",
    "read",
    "show",
    "write",
]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--markdown", metavar="FILE", help="write a summary for a CI job")
    add("--badge", metavar="FILE", help="write the JSON of a badge of shields.io")
    add("--site", metavar="DIR", help="write targets by checks as HTML pages")
    add("--compare", metavar="OLD", help="print what changed since that report")


def is_report(target: str) -> bool:
    """Return whether a target is the name of a file with a report."""
    return target.endswith((".json", ".jsonl"))


def read(name: str) -> Report:
    """Read a report; raise `CannotRun` if it is none."""
    from dlx_check.conformance.results import CutOff, Report

    try:
        with open(name, encoding="utf-8") as file:
            return Report.read(file)
    except (OSError, UnicodeDecodeError, CutOff) as error:
        raise CannotRun(f"{name}: {error}") from None


def folder(report: Report) -> str:
    """Name the folder of a target's reproductions."""
    from dlx_check.conformance.reports.text import file_name

    return file_name(report.header.target)


def demand(args: argparse.Namespace) -> None:
    """Refuse, before anything runs, what could not be written afterwards."""
    alone = ("json", "badge", "compare")
    for option in alone:
        if getattr(args, option) and len(args.targets) > 1:
            raise CannotRun(f"--{option} is of one report: name one target")
    chosen = args.only or args.role or args.level
    if args.badge and chosen:
        raise CannotRun("--badge is of all checks: leave --only, --role, --level out")
    chosen = chosen or args.suite != "99"
    if chosen and any(map(is_report, args.targets)):
        raise CannotRun("a report is taken whole: leave what selects checks out")
    if args.site and Path(args.site).is_file():
        raise CannotRun(f"--site: {args.site} is no directory")
    for option in ("json", "badge", "markdown"):
        file = getattr(args, option)
        if file and not Path(file).absolute().parent.is_dir():
            raise CannotRun(f"--{option}: {Path(file).parent} is no directory")


def write(
    args: argparse.Namespace,
    reports: Sequence[Report],
    known: Mapping[str, frozenset[str]],
) -> None:
    """Write the files that were asked for; `known` has checks by names of targets."""
    from dlx_check.conformance.reports.badge import badge
    from dlx_check.conformance.reports.markdown import markdown
    from dlx_check.conformance.reports.order import accepted
    from dlx_check.conformance.reports.site import write as write_site

    try:
        if args.json:
            _lines(args.json, reports[0].lines())
        if args.markdown:
            _text(args.markdown, "".join(markdown(reports, known)))
        if args.badge:
            found = badge(reports[0], accepted(reports[0], known))
            _lines(args.badge, [json.dumps(found)])
        if args.site:
            print(write_site(reports, Path(args.site), known))
    except OSError as error:
        raise CannotRun(str(error)) from None


def show(
    report: Report,
    everything: bool,
    old: Report | None = None,
    known: frozenset[str] = frozenset(),
) -> int:
    """Print a report, or what changed since an old one; return the latter's code."""
    from dlx_check.conformance.reports.compare import compare
    from dlx_check.conformance.reports.text import describe, verdict

    if old is None:
        for line in describe(report, everything, known):
            print(line)
        return 0
    if old.header.target != report.header.target:
        names = f"{old.header.target!r}, not of {report.header.target!r}"
        raise CannotRun(f"--compare: the old report is of {names}")
    found = compare(old, report)
    for line in found.lines():
        print(line)
    if report.exit_code == 2:
        print(verdict(report))
        return 2
    worse = found.worse(known)
    print(
        f"exit {int(bool(worse))}: checks that fail the run and did not: {len(worse)}"
    )
    return int(bool(worse))


def explain(names: str, targets: Sequence[str]) -> int:
    """Print what checks do, and what reports have of them; nothing runs."""
    from dlx_check.conformance.reports.explain import explain, seen
    from dlx_check.conformance.run import select
    from dlx_check.conformance.target import CannotCheck
    from dlx_check.conformance.targets import load

    try:
        checks = select(names.split(","), suite="99")
    except CannotCheck as reason:
        raise CannotRun(str(reason)) from None
    reports = [read(each) for each in targets if is_report(each)]
    others = [each for each in targets if not is_report(each)]
    if any(":" in each for each in others):
        raise CannotRun("--explain runs nothing: name a library that dlx knows")
    try:
        known = [load(each) for each in others or ["numpy"] * (not reports)]
    except CannotCheck as error:
        raise CannotRun(str(error)) from None
    for check in checks:
        for line in explain(check, known):
            print(line)
        for report in reports:
            for line in seen(report, check.id):
                print(line)
        if check is not checks[-1]:
            print()
    return 0


def _lines(name: str, lines: Iterable[str]) -> None:
    _text(name, "".join(f"{line}\n" for line in lines))


def _text(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8", errors="replace")
