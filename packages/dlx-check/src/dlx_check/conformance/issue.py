"""Reproductions as files, and the text of an issue to paste."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dlx_check.conformance.causes import causes
from dlx_check.conformance.reports.order import likewise
from dlx_check.conformance.reports.text import file_name, plain
from dlx_check.conformance.result import Result
from dlx_check.conformance.results import Report

__all__ = ["write"]


def write(report: Report, folder: Path) -> int:
    """Write each reproduction into a folder, and an issue of all; return their number.

    Malformed stimuli are left out: no producer may send them.
    """
    chosen = [
        [each for each in cause.results if each.failed]
        for cause in causes(report.results)
    ]
    if not any(chosen):
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    programs = [each for several in chosen for each in several if _reproduced(each)]
    for result in programs:
        text = f"# {plain(result.text)}\n{result.reproduction}"
        _write(folder / f"{file_name(result.check)}.py", text)
    text = "\n".join(_issue(report, chosen))
    _write((folder / "issue").with_suffix(".md"), text + "\n")
    return len(programs)


def _reproduced(result: Result) -> bool:
    return bool(result.reproduction) and result.confirmed == "reproduced"


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="replace")


def _issue(report: Report, chosen: list[list[Result]]) -> Iterator[str]:
    header = report.header
    yield (
        f"{header.target} {header.version}, NumPy {header.numpy}, Python "
        f"{header.python}, {header.platform}."
    )
    for several in chosen:
        for same in _sections(several):
            yield from _section(same, report)


def _sections(several: list[Result]) -> Iterator[list[Result]]:
    """Give each with a program alone, and others that say the same together."""
    alike: dict[tuple[object, ...], list[Result]] = {}
    for each in several:
        key = (each.text, each.expected, each.statement, each.like_numpy)
        own = (each.check,) if _reproduced(each) else key
        alike.setdefault(own, []).append(each)
    yield from alike.values()


def _section(same: list[Result], report: Report) -> Iterator[str]:
    result = same[0]
    derived = ", as we read it" if result.derived else ""
    names = ", ".join(f"`{each.check}`" for each in same)
    yield ""
    yield f"## {names} {result.text}"
    yield ""
    yield f"{result.level.upper()}{derived} ({result.source}): {result.statement}"
    yield ""
    yield f"Expected: {result.expected}."
    if result.like_numpy:
        yield ""
        yield f"{likewise(report)}."
    yield ""
    if _reproduced(result):
        yield "```python"
        yield result.reproduction.rstrip()
        yield "```"
    else:
        yield f"Found: {result.text}."
        yield ""
        yield f"No reproduction: {result.no_reproduction or 'it was not tried'}."
