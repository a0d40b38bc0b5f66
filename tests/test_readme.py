"""The README: every block of code runs as it stands."""

import re
from pathlib import Path

import pytest
from heavy import requires

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", [code for _, code in BLOCKS])
def test_a_block_of_the_readme_runs(code: str) -> None:
    if "import torch" in code:
        requires("torch")
    exec(compile(code, str(README), "exec"), {})


def test_every_block_of_the_readme_is_python() -> None:
    assert {language for language, _ in BLOCKS} == {"python"}


def test_the_readme_has_at_most_150_lines() -> None:
    assert len(TEXT.splitlines()) <= 150


def test_what_the_first_example_prints_is_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = BLOCKS[0][1]
    exec(compile(code, str(README), "exec"), {})
    said = re.search(r"print\(t\)  # (.*)", code)
    assert said is not None
    assert capsys.readouterr().out.strip() == said[1]
