"""The pages of `--site`, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from dlx_check import Report
from dlx_check.cli import main
from dlx_check.conformance.reports.site import write
from support.browser import chromium

from conformance.samples import changed, numpy, spoken, strict

HOSTILE = "\"'><img src=x onerror=alert(1)></script><script>alert(1)</script>&amp;`a`"
WRONG = "consumer.missing.device"
# The ratio of each kind of text to what is behind it, as WCAG 2 counts it.
CONTRAST = """
const parts = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (n) => n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4;
const light = (text) => {
  const [r, g, b] = parts(text).slice(0, 3).map((n) => linear(n / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (each) => {
  for (; each; each = each.parentElement) {
    const color = getComputedStyle(each).backgroundColor;
    if (parts(color)[3] !== 0) return color;
  }
  return "rgb(255, 255, 255)";
};
const found = {};
for (const each of document.querySelectorAll("body, body *")) {
  const kind = `${each.tagName} in ${each.closest("[class]")?.className}`;
  if (kind in found || !each.innerText?.trim()) continue;
  const pair = [light(getComputedStyle(each).color), light(behind(each))];
  found[kind] = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}
return found;
"""


class Page(HTMLParser):
    """The elements, the anchors and the links of a page."""

    def __init__(self, file: Path) -> None:
        """Read a page."""
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the tests ask for."""
        found = dict(attrs)
        self.tags.append(tag)
        self.ids.append(found.get("id") or "")
        self.links += [value for name in ("href", "src") if (value := found.get(name))]


def tags(folder: Path) -> set[str]:
    """The kinds of elements on the pages of a folder."""
    return {tag for file in folder.glob("*.html") for tag in Page(file).tags}


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    return [numpy(), strict()]


@pytest.fixture(scope="module")
def site(reports: list[Report], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(reports, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(browser: Any, site: Path) -> Any:
    """The page of all targets, just loaded."""
    browser.get(site.as_uri())
    return browser


def rows(page: Any) -> list[str]:
    """The checks that are shown, from above."""
    code = """return [...document.querySelectorAll("table.sorted tbody tr")]
        .filter((row) => row.checkVisibility()).map((row) => row.cells[0].innerText)"""
    return [str(each) for each in page.execute_script(code)]


def choose(page: Any, name: str, value: str) -> None:
    page.find_element("css selector", f"select[name={name}]").send_keys(value)


def head(page: Any, title: str) -> Any:
    return page.find_element("xpath", f"//th/button[starts-with(., '{title}')]")


def test_every_check_is_shown_and_nothing_is_in_the_console(
    page: Any, reports: list[Report]
) -> None:
    """README.md, Reports: in the order of the suite, from a file, by itself."""
    assert rows(page) == [each.check for each in reports[0].results]
    assert page.get_log("browser") == []
    entries = "return performance.getEntriesByType('resource').map((e) => e.name)"
    assert page.execute_script(entries) == []


def test_a_click_on_a_title_sorts_and_another_sorts_backwards(
    page: Any, reports: list[Report]
) -> None:
    """README.md, Reports: the column of a target has the worst first."""
    results = {each.check: each.result for each in reports[0].results}
    button = head(page, "numpy")
    button.click()
    ascending = [results[each] for each in rows(page)]
    cell = button.find_element("xpath", "..")
    assert cell.get_attribute("aria-sort") == "ascending"
    worst = ["crashes", "deviates", "fact", "untestable", "meets"]
    assert list(dict.fromkeys(ascending)) == worst
    button.click()
    assert [results[each] for each in rows(page)] == ascending[::-1]
    assert cell.get_attribute("aria-sort") == "descending"


def test_the_keyboard_sorts(page: Any, reports: list[Report]) -> None:
    """README.md, Reports: titles are buttons, so Tab and Enter reach them."""
    head(page, "check").send_keys("\ue007")
    found = rows(page)
    assert found.index("consumer.deleter.null") < found.index("producer.capsule.name")
    assert set(found) == {each.check for each in reports[0].results}
    assert found != [each.check for each in reports[0].results]


def test_requirements_are_sorted_by_their_numbers(page: Any) -> None:
    """requirements.tsv: R9 is before R10."""
    head(page, "requirement").click()
    found = page.execute_script(
        "return [...document.querySelectorAll('tbody small')].map((e) => e.innerText)"
    )
    numbers = [int(n[1]) for text in found if (n := re.search(r"\(R(\d+)", text))]
    assert numbers == sorted(numbers)
    assert len(numbers) > 200


@pytest.mark.parametrize(
    ("name", "value"),
    [("role", "consumer"), ("level", "robustness"), ("result", "deviates")],
)
def test_a_filter_shows_what_is_chosen(
    page: Any, reports: list[Report], name: str, value: str
) -> None:
    """README.md, Reports: by role, level and result."""
    wanted = {
        each.check
        for report in reports
        for each in report.results
        if {
            "role": each.role == value,
            "level": each.stimulus == "malformed",
            "result": each.result == value,
        }[name]
    }
    choose(page, name, value)
    found = rows(page)
    assert wanted == set(found)
    said = page.find_element("css selector", "output").text
    assert said == f"{len(found)} of {len(reports[0].results)} checks"
    page.find_element("css selector", "form button").click()
    assert len(rows(page)) == len(reports[0].results)


def test_text_filters_by_all_of_its_words(page: Any, reports: list[Report]) -> None:
    """README.md, Reports: in names, statements, sources and effects."""
    page.find_element("name", "text").send_keys("Attributeerror MISSING")
    assert rows(page) == [
        each.check
        for each in reports[0].results
        if each.check.startswith("consumer.missing.")
    ]


def test_a_sorted_table_is_filtered_and_a_filtered_one_sorted(page: Any) -> None:
    """README.md, Reports: sorts and filters do not undo each other."""
    choose(page, "role", "table")
    head(page, "check").click()
    found = rows(page)
    assert found == sorted(found)
    assert {each.split(".")[0] for each in found} == {"table"}


def test_a_cell_leads_to_what_was_seen(page: Any, reports: list[Report]) -> None:
    """README.md, Reports: statement, source, what was seen, reproduction."""
    result = next(each for each in reports[0].results if each.check == WRONG)
    page.find_element("xpath", f"//tr[th='{WRONG}']//a[.='deviates']").click()
    section = page.find_element("css selector", "section:target")
    for text in (result.text, result.expected, result.reproduction.rstrip(), WRONG):
        assert text in section.text
    for text in (result.statement, result.source):
        assert text.replace("`", "") in section.text
    assert page.get_log("browser") == []


def test_every_link_leads_somewhere_in_the_site(site: Path) -> None:
    """README.md, Reports: nothing is loaded from elsewhere."""
    pages = {file.name: Page(file) for file in site.parent.glob("*.html")}
    assert len(pages) == 3
    for name, found in pages.items():
        assert found.links
        for link in found.links:
            file, _, anchor = link.partition("#")
            assert unquote(anchor) in pages[unquote(file) or name].ids


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_background(page: Any, site: Path, scheme: str) -> None:
    """README.md, Reports: 4.5 to 1, by day and by night."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    for file in site.parent.glob("*.html"):
        page.get(file.as_uri())
        found = page.execute_script(CONTRAST)
        assert len(found) > 5
        assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}
    backs = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
    code = "return getComputedStyle(document.body).backgroundColor"
    assert page.execute_script(code) == backs[scheme]


def test_markup_in_a_report_is_text(browser: Any, tmp_path: Path) -> None:
    """README.md, Reports: what a target says is shown, and never runs."""
    report = changed(spoken(numpy(), HOSTILE), WRONG, check=HOSTILE)
    index = write([report], tmp_path)
    plain = write([numpy()], tmp_path / "plain")
    shown = HOSTILE.replace("`", "")
    for file in index.parent.glob("*.html"):
        browser.get(file.as_uri())
        assert browser.get_log("browser") == []
        assert browser.find_elements("tag name", "img") == []
        assert shown in browser.find_element("tag name", "body").text
    assert tags(index.parent) == tags(plain.parent)


def test_a_script_that_got_into_a_page_does_not_run(
    browser: Any, site: Path, tmp_path: Path
) -> None:
    """README.md, Reports: the policy lets the page's own script run only."""
    script = "document.title = 'it ran'"
    added = f'<script>{script}</script><img src=x onerror="{script}"></body>'
    file = tmp_path / "index.html"
    file.write_text(site.read_text().replace("</body>", added))
    browser.get(file.as_uri())
    assert browser.title == "DLPack conformance"
    assert any("Content Security" in e["message"] for e in browser.get_log("browser"))
    head(browser, "check").click()
    assert browser.find_elements("css selector", "th[aria-sort]")


def test_what_is_known_is_marked(tmp_path: Path) -> None:
    """README.md, Reports: on the page of its target, and in its numbers."""
    index = write([numpy()], tmp_path, {"numpy": frozenset([WRONG])})
    assert ", 1 known" in index.read_text()
    (page,) = (each for each in tmp_path.iterdir() if each != index)
    assert page.read_text().count("deviates, known (reproduced)") == 1


def test_a_target_cannot_choose_where_its_page_is_written(tmp_path: Path) -> None:
    """README.md, Reports: names are made safe, and no page replaces another."""
    hostile = spoken(numpy(), "../../etc/index.html\0")
    index = write([hostile, hostile, spoken(numpy(), "..")], tmp_path / "site")
    assert [*tmp_path.iterdir()] == [tmp_path / "site"]
    assert len([*index.parent.iterdir()]) == 4


def test_without_scripts_the_table_is_whole(site: Path, reports: list[Report]) -> None:
    """README.md, Reports: only sorts and filters need JavaScript."""
    with chromium(scripts=False) as driver:
        driver.get(site.as_uri())
        text = driver.find_element("tag name", "body").text
    assert all(each.check in text for each in reports[0].results)
    assert "Show all" not in text


def test_the_command_writes_a_site_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Reports: `--site DIR a.jsonl b.jsonl`, which runs nothing."""
    files = []
    for report in (numpy(), strict()):
        files.append(tmp_path / f"{report.header.target}.jsonl")
        files[-1].write_text("\n".join(report.lines()))
    folder = tmp_path / "site"
    assert main(["check", "--site", str(folder), *map(str, files)]) == 1
    assert len([*folder.iterdir()]) == 3
    assert str(folder / "index.html") in capsys.readouterr().out
