"""Static pages: checks by targets, and a page of each target.

A page needs nothing but itself. Its policy allows the one script and the one style that
it has, by their hashes, so markup that got into a page from a report would not run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from dlx_check.conformance.causes import causes
from dlx_check.conformance.reports.badge import badge
from dlx_check.conformance.reports.order import (
    NONE_KNOWN,
    Known,
    accepted,
    columns,
    level,
    likewise,
    roles,
)
from dlx_check.conformance.reports.text import file_name
from dlx_check.conformance.result import RESULTS, Result
from dlx_check.conformance.results import Report
from dlx_check.conformance.suite.row import EFFECTS

__all__ = ["write"]

_HERE = Path(__file__).parent
_WORST = ("crashes", "hangs", "deviates", "error", "fact", "untestable", "meets")
_LEVELS = ("must", "should", "conflict", "robustness")


def write(reports: Sequence[Report], folder: Path, known: Known = NONE_KNOWN) -> Path:
    """Write the pages into a folder, and return that of all targets.

    Pages of the same name are replaced, and nothing else is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = _names(reports)
    for report, name in zip(reports, names, strict=True):
        title = f"{report.header.target} {report.header.version}"
        _write(folder / name, title, _target(report, accepted(report, known)))
    index = folder / "index.html"
    _write(index, "DLPack conformance", _index(reports, names, known), "table.js")
    return index


def _names(reports: Sequence[Report]) -> list[str]:
    """Name a page for each report: safe in a file system, and each once."""
    found: list[str] = []
    for report in reports:
        text = f"{report.header.target}-{report.header.version}"
        stem = f"{file_name(text)}.html"
        name, count = stem, 1
        while name in (*found, "index.html"):
            count += 1
            name = f"{count}-{stem}"
        found.append(name)
    return found


def _write(file: Path, title: str, parts: Iterable[str], script: str = "") -> None:
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    code = (_HERE / script).read_text(encoding="utf-8") if script else ""
    policy = f"default-src 'none'; style-src {_hash(style)}; base-uri 'none'"
    if script:
        policy += f"; script-src {_hash(code)}"
        code = f"<script>{code}</script>"
    text = "\n".join(parts)
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n{text}\n{code}\n</body>\n</html>\n"
    )
    file.write_text(page, encoding="utf-8", errors="replace")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _index(reports: Sequence[Report], names: list[str], known: Known) -> Iterator[str]:
    yield "<h2>Targets</h2>\n<table>\n<thead><tr>"
    for title in ("target", "version", "result", "suite", "platform"):
        yield f'<th scope="col">{title}</th>'
    yield "</tr></thead>\n<tbody>"
    for report, name in zip(reports, names, strict=True):
        head = report.header
        cells = (
            escape(head.version),
            escape(badge(report, accepted(report, known))["message"]),
            escape(f"{head.suite} of dlx {head.dlx}"),
            escape(f"Python {head.python}, NumPy {head.numpy}, {head.platform}"),
        )
        link = f'<a href="{quote(name)}">{escape(head.target)}</a>'
        yield f'<tr><th scope="row">{link}</th>'
        yield "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody>\n</table>\n<h2>Checks</h2>"
    found = [{each.check: each for each in report.results} for report in reports]
    rows = {name: result for each in found for name, result in each.items()}
    yield from _filters(rows.values())
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Checks">'
    yield '<table class="sorted">\n<thead><tr>'
    titles = ["check", "requirement", "level", "effect"]
    targets = (f"{each.header.target} {each.header.version}" for each in reports)
    for title in (*titles, *targets):
        yield f'<th scope="col"><button type="button">{escape(title)}</button></th>'
    yield "</tr></thead>\n<tbody>"
    for check, result in rows.items():
        mine = [each.get(check) for each in found]
        yield _row(result, {each.result for each in mine if each})
        yield from (_cell(*pair) for pair in zip(mine, names, strict=True))
        yield "</tr>"
    yield "</tbody>\n</table>\n</div>"


def _filters(results: Iterable[Result]) -> Iterator[str]:
    chosen = {
        "role": sorted({each.role for each in results}),
        "level": _LEVELS,
        "result": RESULTS,
    }
    yield "<form hidden>"
    yield '<label>Text<input type="search" name="text" autocomplete="off"></label>'
    for name, values in chosen.items():
        options = "".join(f"<option>{escape(each)}</option>" for each in values)
        first = '<option value="">all</option>'
        title = name.capitalize()
        yield f'<label>{title}<select name="{name}">{first}{options}</select></label>'
    yield '<button type="button">Show all</button>\n<output></output>\n</form>'


def _row(result: Result, results: set[str]) -> str:
    names = " ".join(result.requirements)
    effect = EFFECTS.index(result.effect) if result.effect in EFFECTS else len(EFFECTS)
    weight = level(result).lower()
    order = _LEVELS.index(weight) if weight in _LEVELS else len(_LEVELS)
    return (
        f'<tr data-role="{escape(result.role)}" data-level="{escape(weight)}"'
        f' data-results="{" ".join(sorted(results))}">'
        f'<th scope="row" data-key="{escape(result.check)}">'
        f"<code>{escape(result.check)}</code></th>"
        f'<td data-key="{escape(names)}">{_prose(result.statement)}'
        f"<br><small>{_prose(result.source)} ({escape(names)})</small></td>"
        f'<td data-key="{order}">{escape(weight)}</td>'
        f'<td data-key="{effect}">{escape(result.effect)}</td>'
    )


def _cell(result: Result | None, page: str) -> str:
    if result is None:
        return f'<td data-key="{len(_WORST)}"><small>not run</small></td>'
    return (
        f'<td class="{result.result}" data-key="{_WORST.index(result.result)}">'
        f'<a href="{quote(page)}#{_anchor(result)}" title="{escape(result.text)}">'
        f"{result.result}</a></td>"
    )


def _anchor(result: Result) -> str:
    return quote(result.check, errors="replace")


def _target(report: Report, known: frozenset[str]) -> Iterator[str]:
    head, used = report.header, columns(report)
    yield '<p><a href="index.html">All targets</a></p>'
    yield (
        f"<p>DLPack 1.3, suite {escape(head.suite)} of dlx {escape(head.dlx)}, Python "
        f"{escape(head.python)}, NumPy {escape(head.numpy)}, {escape(head.platform)}; "
        f"{escape(badge(report, known)['message'])}.</p>"
    )
    yield '<table>\n<thead><tr><th scope="col">role</th>'
    yield "".join(f'<th scope="col">{each}</th>' for each in used)
    yield "</tr></thead>\n<tbody>"
    for role in roles(report):
        numbers = (report.counts[role].get(each, 0) for each in used)
        yield f'<tr><th scope="row">{escape(role)}</th>'
        yield "".join(f"<td>{number or '-'}</td>" for number in numbers) + "</tr>"
    yield "</tbody>\n</table>"
    if wrong := causes(report.results):
        yield "<h2>Not as required, by causes, the worst first</h2>\n<ol>"
        for cause in wrong:
            yield f"<li>Effect on a user: {escape(cause.effect)}<ul>"
            for each in cause.results:
                name = f"<code>{escape(each.check)}</code>"
                link = f'<a href="#{_anchor(each)}">{name}</a>'
                said = escape(f"{each.result}, {each.text}")
                also = f" ({likewise(report)})" if each.like_numpy else ""
                yield f"<li>{escape(level(each))} {link}: {said}{escape(also)}</li>"
            yield "</ul></li>"
        yield "</ol>"
    for result in report.results:
        yield from _section(report, result, result.check in known)


def _section(report: Report, result: Result, known: bool) -> Iterator[str]:
    words = [level(result).lower(), f"{result.stimulus} stimulus"]
    words += [f"effect on a user: {result.effect}"]
    words += [likewise(report)] * result.like_numpy
    words += ["derived: dlx's reading of its source"] * result.derived
    words += ["only after other checks"] * result.only_after
    confirmed = f" ({result.confirmed})" if result.confirmed else ""
    seen = f"{result.result}{', known' if known else ''}{confirmed}"
    names = " ".join(result.requirements)
    fields = (
        ("Requirement", _prose(result.statement)),
        ("Source", f"{_prose(result.source)} ({escape(names)})"),
        ("Weight", escape(", ".join(words))),
        ("Expected", _prose(result.expected)),
        ("Result", f'<span class="{result.result}">{escape(seen)}</span>'),
        ("Seen", escape(result.text) or "as expected"),
    )
    yield f'<section id="{escape(result.check)}">'
    yield f"<h2><code>{escape(result.check)}</code></h2>\n<dl>"
    yield from (f"<dt>{name}</dt><dd>{text}</dd>" for name, text in fields)
    yield "</dl>"
    if result.reproduction:
        yield f"<p>Reproduction</p>\n<pre>{escape(result.reproduction)}</pre>"
    yield "</section>"


def _prose(text: str) -> str:
    """Return text as HTML, with what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
