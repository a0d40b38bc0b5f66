"""Hooks of MkDocs: the documents of the tree become a site as they are.

Links that leave ``docs/`` get a page of what they lead to, and numbers of requirements,
hazards and invariants (R126, H4, S7) become links to where these are defined.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
# Where `python -m docs.pages` has written the pages that are made from results.
PAGES = ROOT / "build/pages"
# Documents beside what they describe, and the pages that show them.
SHOWN = {
    "README.md": "index.md",
    "packages/dlx-check/README.md": "packages/check.md",
    "packages/dlx-share/README.md": "packages/share.md",
}
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
LANGUAGES = {".c": "c", ".cc": "cpp", ".py": "python", ".rs": "rust", ".toml": "toml"}
# Where numbers are defined, and what a definition looks like there.
DEFINED = {
    "R": ("requirements.md", r"<td>(R\d+)</td>"),
    "H": ("streams.md", r"<td>(H\d+)</td>"),
    "S": ("safety.md", r"<strong>(S\d+)\."),
}
# Markdown would make names bold that are in a table without being code.
DUNDER = re.compile(r"(?<![`\w])__(\w+?)__(?=[^`|]*\|)", re.M)
NUMBER = re.compile(r"\b([RHS])(\d+)\b")
DOCUMENT = re.compile(r"^(?:docs/)?(\w+\.md)$")
# The text of links, code and headings is left alone.
CLOSED = re.compile(r"<(/?)(a|code|pre|h\d|script|svg)\b")


def place(source: str) -> str:
    """Return the path in the tree of what a page is made from."""
    if source.startswith("source/"):
        return source.removeprefix("source/").removesuffix(".md")
    for path, page in SHOWN.items():
        if page == source:
            return path
    return source if (ROOT / source).is_file() else f"docs/{source}"


def page_of(path: str) -> str:
    """Return the page that shows a file of the tree."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    page = path if re.fullmatch(r"\w+\.md", path) else f"source/{path}.md"
    return SHOWN.get(path, page)


def leads_to(source: str, link: str) -> str:
    """Return the path in the tree that a link on a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(place(source)), link))


def on_files(files: Any, config: Any) -> Any:
    """Add pages of what is not in ``docs/``: documents, and what links lead to."""
    wanted = {"CHANGELOG.md", "CONTRIBUTING.md", *SHOWN}
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    texts |= {page: (ROOT / path).read_text() for path, page in SHOWN.items()}
    for source, text in texts.items():
        for _, link in LINK.findall(text):
            path = leads_to(source, link)
            if not path.startswith("docs/") and (ROOT / path).is_file():
                wanted.add(path)
    for path in sorted(wanted):
        text = (ROOT / path).read_text()
        if not path.endswith(".md"):
            language = LANGUAGES.get(Path(path).suffix, "text")
            text = f"# {path}\n\n````{language}\n{text}\n````\n"
        file = File.generated(config, page_of(path), content=text)
        # It is found by links, and need not be in the navigation.
        file.inclusion = type(file.inclusion).NOT_IN_NAV
        files.append(file)
    for made in sorted(PAGES.glob("*.md")):
        files.append(File.generated(config, made.name, content=made.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to the page of a file, wherever it is in the tree."""
    source = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        path = leads_to(source, link[2])
        if not (ROOT / path).is_file() or source.startswith("source/"):
            return link[0]
        target = page_of(path)
        return link[1] + posixpath.relpath(target, posixpath.dirname(source) or ".")

    lines = LINK.sub(moved, markdown).splitlines()
    return "\n".join(DUNDER.sub(r"\_\_\1\_\_", x) if x[:1] == "|" else x for x in lines)


def on_page_content(html: str, page: Any, files: Any, **_: Any) -> str:
    """Link numbers and names of documents to what they name."""
    source = page.file.src_uri
    for document, definition in DEFINED.values():
        if source == document:
            html = re.sub(definition, anchored, html)

    def of(name: str, text: str, anchor: str = "") -> str:
        file = files.get_file_from_path(name)
        if file is None or (name == source and not anchor):
            return text
        return f'<a href="{get_relative_url(file.url, page.url)}{anchor}">{text}</a>'

    def numbered(found: re.Match[str]) -> str:
        if found[0] == "H100":  # A GPU.
            return found[0]
        return of(DEFINED[found[1]][0], found[0], f"#{found[0].lower()}")

    def named(found: re.Match[str]) -> str:
        return of(found[1], found[0])

    parts, closed = re.split(r"(<[^>]+>)", html), 0
    for index, part in enumerate(parts):
        if tag := CLOSED.match(part):
            closed += -1 if tag[1] else 1
        elif closed == 0 and not part.startswith("<"):
            parts[index] = NUMBER.sub(numbered, part)
        elif closed == 1 and parts[index - 1] == "<code>":
            parts[index] = DOCUMENT.sub(named, part)
    return "".join(parts)


def anchored(definition: re.Match[str]) -> str:
    """Give a definition an anchor."""
    tag, _, rest = definition[0].partition(">")
    return f'{tag} id="{definition[1].lower()}">{rest}'
