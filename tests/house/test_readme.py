"""The README and the guides: every block of code runs as it stands."""

import re
from typing import Any

import pytest
from support.documents import BLOCK, ROOT, TEXTS
from support.optional_libraries import requires
from support.python_process import run_python

BLOCKS = [
    (name, language, code)
    for name, text in TEXTS.items()
    for language, code in BLOCK.findall(text)
    if language not in ("console", "toml", "yaml")
]


@pytest.mark.parametrize(("name", "language", "code"), BLOCKS)
def test_a_block_runs(name: str, language: str, code: str) -> None:
    assert language == "python"
    for module in ("torch", "jax", "array_api_compat", "joblib"):
        if f"import {module}" in code:
            requires(module)
    # Changes the process, or has a class that is pickled by its name.
    if any(each in code for each in ("dlx.publish(", "pickle=True", "register(")):
        assert run_python(code) == (0, "", "")
    else:
        exec(compile(code, name, "exec"), {})


def test_the_readme_has_at_most_150_lines() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 150


def test_what_the_first_example_says_of_other_libraries_is_so() -> None:
    """Once torch exports what it shows, the README needs another example."""
    requires("torch")
    names: dict[str, Any] = {}
    for line in "import numpy as np", "import torch":
        exec(line, names)
    said = re.findall(
        r"^(?:x = )?(\S.*)  # ((?:tensor|array)\(.*?\))", BLOCKS[0][2], re.M
    )
    for code, shown in said:
        names["x"] = shown_by = eval(code, names)
        assert repr(shown_by) == shown
    assert len(said) == 2


def test_each_environment_variable_has_a_row() -> None:
    """docs/support.md, Environment variables."""
    read = {
        name
        for folder, kind in (("src", "*.rs"), ("python/dlx", "*.py"))
        for path in (ROOT / folder).rglob(kind)
        for name in re.findall(
            r'(?:var_os|load|environ)[([]"(DLX_\w+)"', path.read_text()
        )
    }
    said = set(re.findall(r"`(DLX_\w+)`", (ROOT / "docs/support.md").read_text()))
    assert read == said
