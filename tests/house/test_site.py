"""The site of the documents: the check of its links."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.links import problems


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two pages, a picture and a style sheet, without a fault."""
    (tmp_path / "guides").mkdir()
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "a.css").write_text("body {}")
    (tmp_path / "index.html").write_text(
        '<link href="a.css"><img src="a.svg" alt="bars"><a href="guides/b.html#there">b'
        '</a><a href="https://example.org">elsewhere</a><p id="here">'
    )
    (tmp_path / "guides/b.html").write_text(
        '<p id="there"><a href="../index.html#here">a</a><a href="..">up</a>'
    )
    return tmp_path


def test_a_site_whose_links_lead_somewhere_passes(site: Path) -> None:
    """CONTRIBUTING.md: a link to another site is not followed."""
    assert problems(site) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ('<a href="missing.html">', "index.html: missing.html is missing"),
        ('<a href="guides/b.html#no">', "guides/b.html#no has no such anchor"),
        ('<a href="#no">', "index.html: #no has no such anchor"),
        ('<a href="../outside.html">', "../outside.html is missing"),
        ('<img src="missing.svg" alt="bars">', "missing.svg is missing"),
        ('<img src="a.svg">', "a.svg has no alt"),
        ('<script src="https://cdn.example.org/a.js">', "<script> fetches https://cdn"),
        ('<link href="//cdn.example.org/a.css">', "<link> fetches //cdn"),
    ],
)
def test_a_fault_of_a_page_is_named(site: Path, fault: str, said: str) -> None:
    """CONTRIBUTING.md: `make docs` says what is wrong, and fails."""
    (site.parent / "outside.html").write_text("")
    page = site / "index.html"
    page.write_text(page.read_text() + fault)
    [found] = problems(site)
    assert said in found


def test_a_style_sheet_that_fetches_is_named(site: Path) -> None:
    """CONTRIBUTING.md: the pages of the site fetch nothing."""
    (site / "a.css").write_text("@font-face { src: url(https://example.org/a.woff) }")
    assert problems(site) == ["a.css: fetches from elsewhere"]
