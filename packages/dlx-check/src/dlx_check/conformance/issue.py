"""Reproductions as files, and the text of an issue to paste."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dlx_check.conformance.reports.text import file_name, plain
from dlx_check.conformance.results import Header, Report, Result, causes

__all__ = ["write"]


def write(report: Report, folder: Path) -> int:
    """Write each reproduction and an issue into a folder; return their number.

    Malformed stimuli are left out: no producer may send them.
    """
    found = [
        result
        for cause in causes(report.results)
        for result in cause.results
        if result.failed and result.reproduction and result.confirmed == "reproduced"
    ]
    if not found:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for result in found:
        text = f"# {plain(result.text)}\n{result.reproduction}"
        _write(folder / f"{file_name(result.check)}.py", text)
    text = "\n".join(_issue(report.header, found))
    _write((folder / "issue").with_suffix(".md"), text + "\n")
    return len(found)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="replace")


def _issue(header: Header, found: list[Result]) -> Iterator[str]:
    yield (
        f"{header.target} {header.version}, NumPy {header.numpy}, Python "
        f"{header.python}, {header.platform}."
    )
    for result in found:
        derived = ", as we read it" if result.derived else ""
        yield ""
        yield f"## `{result.check}` {result.text}"
        yield ""
        yield f"{result.level.upper()}{derived} ({result.source}): {result.statement}"
        yield ""
        yield f"Expected: {result.expected}."
        yield ""
        yield "```python"
        yield result.reproduction.rstrip()
        yield "```"
