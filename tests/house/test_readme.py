"""The README and the guides: every block of code runs as it stands."""

import re

import pytest
from support.documents import BLOCK, TEXTS
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


def test_what_the_first_example_prints_is_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, _, code = BLOCKS[0]
    exec(compile(code, name, "exec"), {})
    said = re.search(r"print\(t\)  # (.*)", code)
    assert said is not None
    assert capsys.readouterr().out.strip() == said[1]
