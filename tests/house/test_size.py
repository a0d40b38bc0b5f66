"""What the house may hold: later changes make room for what they add.

`python tests/house/test_size.py` prints the counts.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = {
    "lines of Rust code": 19_590,
    "lines of the longest Rust file": 350,
    "words of documents": 20_000,
    "targets of the Makefile": 15,
    "tasks": 41,
    "requirement files": 0,
}
"""No count may be more. Who makes one less writes the new one here."""


def files(pattern: str) -> list[Path]:
    """Return the files of the tree that git knows."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", pattern]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in names.split("\0") if name)
    return [path for path in paths if path.exists()]


def code(text: str) -> list[str]:
    """Return the lines of Rust that are no comment, no blank and no test."""
    product = text.partition("#[cfg(test)]\nmod tests {")[0]
    lines = (line.strip() for line in product.splitlines())
    return [line for line in lines if line and not line.startswith("//")]


@cache
def counts() -> dict[str, int]:
    """Count."""
    rust = {path: path.read_text() for path in files("src/*.rs")}
    product = {path: text for path, text in rust.items() if path.name != "tests.rs"}
    documents = [
        path.read_text() for path in files("*.md") if "third_party" not in path.parts
    ]
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.M)
    targets = phony[1].replace("\\\n", " ").split() if phony else []
    tasks = (ROOT / "tests/tasks.py").read_text()
    return {
        "lines of Rust code": sum(len(code(text)) for text in product.values()),
        "lines of the longest Rust file": max(
            len(text.splitlines()) for text in rust.values()
        ),
        "words of documents": sum(len(text.split()) for text in documents),
        "targets of the Makefile": len(targets),
        "tasks": len(re.findall(r'^    "[\w-]+": Task\(', tasks, re.M)),
        "requirement files": len(files("*requirements*.txt")),
    }


@pytest.mark.parametrize("what", MOST)
def test_the_house_does_not_grow(what: str) -> None:
    assert counts()[what] <= MOST[what]


if __name__ == "__main__":
    for name, count in counts().items():
        print(f"{count:7} {name}, at most {MOST[name]}")
