"""Check the built site without a network: each link, anchor and picture is there.

``python tests/docs/links.py build/site`` names what is missing, and whatever a page
would fetch from elsewhere, and exits with 1 if there is any.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# A browser fetches these by itself; what an <a> names only when somebody follows it.
FETCHED = {"audio", "iframe", "img", "link", "script", "source", "video"}


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, path: Path) -> None:
        """Read a page."""
        super().__init__()
        self.anchors: set[str] = set()
        self.references: list[tuple[str, str]] = []
        self.unnamed: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names and refers to."""
        attributes = dict(attrs)
        self.anchors |= {attributes.get(name) or "" for name in ("id", "name")}
        for name in ("href", "src"):
            if value := attributes.get(name):
                self.references.append((tag, value))
        if tag == "img" and not attributes.get("alt"):
            self.unnamed.append(attributes.get("src") or "")


def problems(site: Path) -> list[str]:
    """Return what is missing from a site, a line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        found += [f"{where}: {name} has no alt" for name in page.unnamed]
        for tag, reference in page.references:
            url = urlsplit(reference)
            if url.scheme or url.netloc:
                if tag in FETCHED:
                    found.append(f"{where}: <{tag}> fetches {reference}")
                continue
            # The page of errors is served for any path: its links begin at the root.
            start = site if url.path.startswith("/") else path.parent
            target = (start / unquote(url.path).lstrip("/")).resolve()
            target = path if not url.path else target
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or site.resolve() not in target.resolve().parents:
                found.append(f"{where}: {reference} is missing")
            elif url.fragment and target.suffix == ".html":
                anchors = pages[site / target.resolve().relative_to(site.resolve())]
                if unquote(url.fragment) not in anchors.anchors | {"__top"}:
                    found.append(f"{where}: {reference} has no such anchor")
    for sheet in site.rglob("*.css"):
        if "url(http" in sheet.read_text() or "@import" in sheet.read_text():
            found.append(f"{sheet.relative_to(site)}: fetches from elsewhere")
    return found


if __name__ == "__main__":
    missing = problems(Path(sys.argv[1]))
    print(*missing, sep="\n", end="\n" if missing else "")
    sys.exit(bool(missing))
