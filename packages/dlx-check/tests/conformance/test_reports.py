"""What is made of a report: Markdown, a badge, text."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from dlx_check import Report
from dlx_check.cli import main
from dlx_check.conformance.causes import by_effect, causes
from dlx_check.conformance.records import UNNAMED
from dlx_check.conformance.reports.badge import badge
from dlx_check.conformance.reports.markdown import LIMIT, markdown
from dlx_check.conformance.reports.order import unnamed
from dlx_check.conformance.reports.text import describe, verdict
from dlx_check.conformance.suite.row import EFFECTS
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conformance.samples import changed, dlx, numpy, spoken, strict

WRONG = "consumer.missing.device"
EXAMPLES = 300 if os.environ.get("DLX_EVERY") else 100
MARKUP = "`*_~|<>[]()!#&;:/$\\\"'-+=@\n\r\t wwwhtps.comx1\x00\x1b"


class Text(HTMLParser):
    """The tags of a page, and its text in one line."""

    def __init__(self, page: str) -> None:
        """Read a page."""
        super().__init__()
        self.tags: list[str] = []
        self._parts: list[str] = []
        self.feed(page)
        self.text = " ".join("".join(self._parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag."""
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self._parts.append(data)


def rendered(text: str) -> Text:
    """Markdown as a browser gets it: with tables, and with HTML let through."""
    found = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return Text(found)


def deviating(report: Report) -> Report:
    """Return a report of only a few results, all of them shown."""
    return replace(report, results=tuple(by_effect(report.results)[:3]))


def hostile(text: str) -> Report:
    """Return a report that says `text`, and has a check of that name."""
    report = spoken(deviating(numpy()), text)
    return changed(report, WRONG, check=text)


def structure(text: str) -> list[str]:
    """Return the tags of a page that says `text`: a message may have code."""
    found = rendered("".join(markdown([hostile(text)])))
    return [tag for tag in found.tags if tag != "code"]


@cache
def plain_structure() -> list[str]:
    """Return the tags of a page that says nothing special."""
    return structure("plain")


def test_markdown_counts_roles_by_result() -> None:
    """README.md, Reports: a table of roles, robustness last."""
    report = numpy()
    lines = "".join(markdown([report])).splitlines()
    assert "| role | meets | deviates | crashes | untestable | fact |" in lines
    deviates = report.counts["consumer"]["deviates"]
    row = next(line for line in lines if line.startswith("| consumer |"))
    assert row.split(" | ")[2] == str(deviates)
    assert f"NumPy {report.header.numpy}" in "".join(lines)


def test_markdown_shows_each_deviation_with_its_evidence() -> None:
    """README.md, Reports: requirement, source, expected, seen, reproduction."""
    report = numpy()
    text = "".join(markdown([report]))
    for result in by_effect(report.results):
        part = text.split(f"### `{result.check}`")[1].split("\n### ")[0]
        assert result.effect in part
        assert result.text in part
        assert rendered(result.expected).text in rendered(part).text
        assert rendered(result.source).text in rendered(part).text
        assert result.reproduction in part
        assert part.count("<details>") == part.count("</details>") == 1


def test_markdown_is_sorted_by_effect() -> None:
    """README.md, Reports: what fails the run, the rest, robustness."""
    report = strict()
    checks = {each.check: each for each in report.results}
    names = re.findall(r"### `(.+?)`", "".join(markdown([report])))
    found = [checks[name] for name in names]
    assert {each.check for each in found} == {
        each.check
        for each in report.results
        if each.result in ("deviates", "crashes", "hangs")
    }
    keys = [
        (not e.fails_run, e.stimulus == "malformed", EFFECTS.index(e.effect))
        for e in found
    ]
    assert len(keys) > 3
    assert keys == sorted(keys)


@given(st.text(alphabet=MARKUP, min_size=1, max_size=40))
@settings(max_examples=EXAMPLES)
def test_nothing_that_a_target_says_is_markup(text: str) -> None:
    """README.md, Reports: any text is shown as it is, whatever is in it."""
    assert structure(text) == plain_structure()


@given(st.text(alphabet=MARKUP.translate({0: None}), min_size=1, max_size=40))
@settings(max_examples=EXAMPLES)
def test_what_a_target_says_is_shown(text: str) -> None:
    """README.md, Reports: no character of a message is lost or changed."""
    one = deviating(numpy()).results[0]
    report = replace(numpy(), results=(replace(one, text=text, reproduction=""),))
    found = rendered("".join(markdown([report]))).text
    shown = " ".join(text.split()) or "-"
    assert f"Seen: {one.result}, {shown}" in found


def test_markdown_marks_what_is_known_of_a_target() -> None:
    """README.md, Reports: what one target may do, another may not."""
    for name, count in (("numpy", 1), ("another", 0)):
        text = "".join(markdown([numpy()], {name: frozenset([WRONG])}))
        assert text.count("user: class of error, known") == count


def test_a_long_summary_ends_before_its_limit() -> None:
    """README.md, Reports: GitHub refuses a summary of more than 1 MiB."""
    long = spoken(deviating(numpy()), "é" * 100_000)
    text = "".join(markdown([long, long]))
    assert len(text.encode()) < LIMIT + 100
    assert text.endswith("The rest is in the JSON reports: a summary has a limit.\n")


def test_a_badge_is_green_where_all_that_is_testable_meets() -> None:
    """README.md, Reports: what is untestable does not count, nor does a fact."""
    found = badge(dlx())
    assert found["color"] == "brightgreen"
    numbers = re.fullmatch(r"MUST (\d+)/(\d+)", found["message"])
    assert numbers
    assert numbers[1] == numbers[2]
    assert (found["schemaVersion"], found["label"]) == (1, "DLPack 1.3")


def test_a_badge_is_red_where_a_run_fails() -> None:
    """README.md, Reports: numbers, and no percentage."""
    found = badge(numpy())
    assert found["color"] == "red"
    assert re.fullmatch(r"MUST (\d+)/(\d+), SHOULD \d+/\d+", found["message"])
    assert "%" not in json.dumps(found)


def test_a_badge_is_yellow_where_deviations_are_known() -> None:
    """README.md, Reports: a deviation from a SHOULD is no red, known or not."""
    found = badge(numpy(), frozenset([WRONG]))
    assert found["color"] == "yellow"
    assert found["message"].endswith(", 1 known")


def test_a_badge_of_an_unconfirmed_deviation_is_not_green() -> None:
    """README.md, Reports: it fails no run, and nothing says that it is met."""
    report = changed(dlx(), WRONG, result="deviates", confirmed="unconfirmed")
    assert badge(report)["color"] == "yellow"


def test_a_badge_says_that_the_suite_failed() -> None:
    """README.md, Results: an error says nothing of the target."""
    found = badge(changed(dlx(), WRONG, result="error"))
    assert found["isError"] is True
    assert "MUST" not in found["message"]


def test_a_badge_without_a_test_is_grey() -> None:
    """README.md, Reports: 0 of 0 is neither good nor bad."""
    table = tuple(each for each in numpy().results if each.role == "table")
    assert table
    found = badge(replace(numpy(), results=table))
    assert found["color"] == "lightgrey"
    assert found["message"] == "nothing testable"


def test_text_names_source_effect_and_expectation() -> None:
    """README.md, Reports: an R-number never stands alone."""
    result = next(each for each in numpy().results if each.check == WRONG)
    text = "\n".join(describe(numpy(), True))
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if f" {WRONG} " in line)
    assert lines[at].endswith(f"deviates: {result.text}")
    assert lines[at - 1].endswith(f"effect on a user: {result.effect}")
    assert lines[at + 1].endswith(result.expected)
    assert result.source in lines[at + 2]
    for line in lines:
        assert not re.match(r"^\W*R\d+\W*$", line)


def test_text_shows_what_fails_the_run_before_robustness() -> None:
    """README.md, Reports: three groups, each sorted by effect."""
    lines = [*describe(numpy(), True)]
    titles = [
        lines.index("Fails the run: a MUST, or wrong numbers or freed memory"),
        lines.index("Fails no run"),
        lines.index("Robustness: stimuli that no producer may send, not counted"),
        lines.index("Facts: what the target does where it has a choice"),
        lines.index("Untestable, by reason"),
    ]
    assert titles == sorted(titles)


def test_text_shows_what_is_known_only_where_it_shows_all() -> None:
    """README.md, Reports: and then marks it."""
    known = frozenset([WRONG])
    assert not any(f" {WRONG} " in line for line in describe(numpy(), False, known))
    assert "0 more, 1 known, facts" in "\n".join(describe(numpy(), False, known))
    marked = f"{WRONG}  deviates (known)"
    assert any(marked in line for line in describe(numpy(), True, known))


def test_text_names_the_tensors_that_a_target_lacks() -> None:
    """`help(Target)`, ``tensors``: and what that costs."""
    lacking = changed(numpy(), WRONG, result="untestable", text=f"{UNNAMED}rotated")
    before, after = unnamed(numpy().results), unnamed(lacking.results)
    assert after == before | {"rotated": 1}
    [line] = [each for each in describe(lacking, False) if "does not name" in each]
    assert line.startswith(f"{sum(after.values())} checks need tensors that the target")
    assert line.endswith(", ".join(after))


def test_what_is_known_fails_no_run() -> None:
    """README.md, Reports: what fails it is said in the last line."""
    assert verdict(numpy()) == "exit 1: results that fail the run: 1"
    assert verdict(numpy(), frozenset([WRONG])) == "exit 0: nothing fails the run"
    wrong = changed(numpy(), WRONG, result="error")
    told = "exit 2: the suite itself failed, or the description of the target"
    assert verdict(wrong) == told


LIKEWISE = f"NumPy {numpy().header.numpy} likewise"


def test_what_numpy_does_likewise_is_marked() -> None:
    """README.md, What to do with the result: array_api_strict imports by NumPy."""
    found = {each.check: each for each in strict().results}
    assert found[WRONG].like_numpy
    assert not found["consumer.missing.both"].like_numpy
    assert f"cause 1, effect on a user: class of error, {LIKEWISE}" in "".join(
        markdown([strict()])
    )
    [line] = [each for each in describe(strict(), False) if "start with" in each]
    assert line == (
        f"1 cause fails the run (1 of them {LIKEWISE}); start with 1, "
        f"class of error: {WRONG}"
    )
    assert not any(each.like_numpy for each in numpy().results)


def test_what_the_library_does_itself_is_mended_before_what_numpy_does() -> None:
    """README.md, What to do with the result: also where its effect is milder."""
    own = changed(
        strict(), "producer.copy.true.flag", result="deviates", effect="metadata"
    )
    first, second = causes(own.results)[:2]
    assert [each.check for each in first.results] == ["producer.copy.true.flag"]
    assert [each.check for each in second.results] == [WRONG]
    assert second.like_numpy


def test_what_misses_one_requirement_is_one_cause() -> None:
    """README.md, What to do with the result: so is what was seen in the same words."""
    report = numpy()
    seen = {
        "producer.copy.true": "shares memory",  # R47
        "producer.copy.true.unversioned": "exports other elements",  # R47
        "producer.copy.false": "shares memory",  # R48, in the same words
        "consumer.copy.none": "shares memory",  # of another role
    }
    for check, text in seen.items():
        wrong = {"result": "deviates", "text": text, "effect": "wrong numbers"}
        report = changed(report, check, **wrong)
    names = [{r.check for r in each.results} for each in causes(report.results)]
    apart = {"consumer.copy.none"}
    assert names[:2] == [{*seen} - apart, apart]
    said = [*describe(report, False)]
    assert "1. effect on a user: wrong numbers" in said
    assert any("start with 1, wrong numbers: producer.copy" in each for each in said)
    assert "causes" in json.loads([*report.lines()][-1])


def test_text_shows_a_few_checks_of_one_cause() -> None:
    """README.md, What to do with the result: a cause hides no other."""
    report = numpy()
    dtypes = [e.check for e in report.results if "producer.dtype" in e.check]
    for check in dtypes:
        report = changed(report, check, result="deviates", text="no room")
    lines = [*describe(report, False)]
    assert sum(" producer.dtype." in each for each in lines) == 5  # one to start with
    assert any(f"and {len(dtypes) - 4} more of this cause" in each for each in lines)
    assert any(f" {WRONG} " in each for each in lines)
    assert sum(" producer.dtype." in each for each in describe(report, True)) > 5


def test_text_moves_no_cursor() -> None:
    """README.md, Reports: a message may hold the codes of a terminal."""
    report = spoken(numpy(), "a\x1b[2Jb\r\n\ud800")
    for line in describe(report, True):
        assert line.isprintable()
        line.encode()


def test_the_command_writes_each_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Reports: of a run and of a file the same."""
    names = ("json", "markdown", "badge")
    first = {name: tmp_path / f"first.{name}" for name in names}
    again = {name: tmp_path / f"again.{name}" for name in names}
    for target, files in (("numpy", first), (str(first["json"]), again)):
        options = [text for name in names for text in (f"--{name}", str(files[name]))]
        assert main(["check", target, *options]) == 1
    for name in names:
        assert first[name].read_text() == again[name].read_text()
    assert json.loads(first["badge"].read_text())["color"] == "red"
    assert first["markdown"].read_text().startswith("## `numpy ")
    out = capsys.readouterr().out
    assert out[: len(out) // 2] == out[len(out) // 2 :]


def test_a_message_that_is_no_text_is_written(tmp_path: Path) -> None:
    """README.md, Reports: an exception may say half a surrogate pair."""
    file = tmp_path / "report.json"
    report = changed(spoken(numpy(), "\ud800"), WRONG, check="\ud800")
    file.write_text("\n".join(report.lines()))
    options = ["--markdown", str(tmp_path / "summary"), "--site", str(tmp_path)]
    repros = ["--repros", str(tmp_path / "repros")]
    assert main(["check", str(file), *options, *repros]) == 0


def test_reproductions_of_a_report_stay_in_their_folder(tmp_path: Path) -> None:
    """README.md, Reports: a report may come from anybody."""
    report = changed(spoken(numpy(), "../.."), WRONG, check="../../outside\ud800")
    file = tmp_path / "report.json"
    file.write_text("\n".join(report.lines()))
    folder = tmp_path / "in" / "repros"
    assert main(["check", str(file), "--repros", str(folder)]) == 0
    assert {each.name for each in tmp_path.iterdir()} == {"in", "report.json"}
    assert [*folder.parent.iterdir()] == [folder]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["numpy", "dlx", "--badge", "unused"], "--badge is of one report"),
        (["numpy", "--badge", "unused", "--role", "table"], "--badge is of all"),
        (["numpy", "--markdown", "nowhere/at/all"], "is no directory"),
        (["nothing.jsonl"], "No such file"),
        (["nothing.jsonl", "--level", "must"], "a report is taken whole"),
        (["nothing.jsonl", "--suite", "1.3.0"], "a report is taken whole"),
        (["numpy", "--site", "README.md"], "is no directory"),
        (["numpy", "--compare", "nothing.jsonl"], "No such file"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_run(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md: exit code 2, and one line that says why."""
    assert main(["check", *options]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
