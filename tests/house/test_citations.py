"""What comments and documents cite exists, and a test cites each requirement."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dlx_check.conformance.requirements import requirements
from docs.pages import pages

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "python", "packages", "tests", "docs", "benches", "examples")
KINDS = {".rs", ".py", ".pyi", ".c", ".cpp", ".h", ".md"}
TEXTS = {
    path.relative_to(ROOT): path.read_text()
    for pattern in ("*.md", *(f"{folder}/**/*" for folder in FOLDERS))
    for path in ROOT.glob(pattern)
    if path.suffix in KINDS and path.is_file() and "target" not in path.parts
}
SAFETY, STREAMS = (Path("docs", f"{name}.md") for name in ("safety", "streams"))
GENERATED = {*pages(), "index.md"}
"""Pages that the site alone has."""
DEFINED = {
    *requirements(),
    *re.findall(r"^\*\*(S\d+)\.", TEXTS[SAFETY], re.M),
    *re.findall(r"^\| (H\d+) \|", TEXTS[STREAMS], re.M),
}


def cited(text: str) -> set[str]:
    """Give the numbers that a text cites, with those between the ends of a range."""
    # H100 is a GPU.
    numbers = set(re.findall(r"\b[RSH]\d+\b", text)) - {"H100"}
    for kind, first, last in re.findall(r"\b([RSH])(\d+) to \1(\d+)\b", text):
        numbers |= {f"{kind}{number}" for number in range(int(first), int(last) + 1)}
    return numbers


def checks_in(path: Path, text: str) -> str:
    """Give the part of a file that is tests."""
    if "tests" in path.parts or path.name == "tests.rs":
        return text
    return text.partition("#[cfg(test)]")[2] if path.suffix == ".rs" else ""


def test_every_number_that_is_cited_exists() -> None:
    missing = {
        f"{path}: {number}"
        for path, text in TEXTS.items()
        for number in cited(text) - DEFINED
    }
    assert not missing


def test_every_section_that_is_cited_exists() -> None:
    """A document, a comma, and a heading or a number; sections are not numbered."""
    missing = set()
    for path, text in TEXTS.items():
        for name, section in re.findall(r"\b(\w+\.md)`?, ([A-Z][\w `=']*)", text):
            documents = [text for path, text in TEXTS.items() if path.name == name]
            headings = re.findall(r"^#+ (.+)", "\n".join(documents), re.M)
            if not section.startswith((*headings, *DEFINED)):
                missing.add(f"{path}: {name}, {section}")
        for section in re.findall(r"\b[A-Z]\.\d+\b|\b[Ss]ection \d+", text):
            missing.add(f"{path}: {section}")
    assert not missing


def test_every_document_that_is_named_exists() -> None:
    documents = {path.name for path in TEXTS if path.suffix == ".md"} | GENERATED
    missing = {
        f"{path}: {name}"
        for path, text in TEXTS.items()
        for name in re.findall(r"(?<![\w*/])(?:docs/)?(\w+\.md)\b", text)
        if name not in documents
    }
    assert not missing


def test_a_test_cites_each_requirement_and_each_hazard() -> None:
    tests = "\n".join(checks_in(path, text) for path, text in TEXTS.items())
    missing = {number for number in DEFINED - cited(tests) if number[0] in "RH"}
    assert not missing


def test_the_source_cites_each_invariant() -> None:
    source = "\n".join(text for path, text in TEXTS.items() if path.parts[0] == "src")
    missing = {number for number in DEFINED - cited(source) if number[0] == "S"}
    assert not missing


def test_every_library_that_a_test_requires_is_installed_for_it() -> None:
    """CONTRIBUTING.md, "Set-up": `make ci` fails where such a library is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    installed = [*project["project"]["optional-dependencies"]["test"]]
    installed += groups["libraries"] + groups["interop"]
    names = {
        name
        for path, text in TEXTS.items()
        if "tests" in path.parts and path.suffix == ".py"
        for name in re.findall(r"\brequires\(\s*\"(\w+)", text)
    }
    distributions = {"cuda": "cuda-core", "tvm_ffi": "apache-tvm-ffi"}
    distributions |= {"xdist": "pytest-xdist", "tensorflow": "tensorflow-cpu"}
    distributions |= {"Cython": "cython", "PIL": "pillow"}
    listed = [re.split(r"[>\[]", each)[0] for each in installed]
    assert names
    assert not {distributions.get(name, name) for name in names} - {*listed}
