"""The commands that the tree names: each target and each task is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from ci import LISTS
from tasks import TASKS, commands

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PHONY = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
NIGHTLY = re.search(r"^NIGHTLY := (.*)$", MAKEFILE, re.M)
TARGET = re.compile(r"`make ((?:[a-z][\w-]* ?)+)(?: [A-Z]+=[^`]*)?`")
TASK = re.compile(r"tests/tasks\.py\s+((?:[a-z][\w-]*[ \n]?)+)`")


def texts() -> dict[str, str]:
    """Return the text of each file that may name a command."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", "*.md", "*.py", "*.toml"]
    command += ["*.rs", "*.yml", ".ci/run"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    paths = {name: ROOT / name for name in names.split("\0") if name}
    return {name: path.read_text() for name, path in paths.items() if path.exists()}


@pytest.mark.parametrize(("pattern", "least"), [(TARGET, 20), (TASK, 20)])
def test_each_command_that_is_named_exists(
    pattern: re.Pattern[str], least: int
) -> None:
    assert PHONY is not None
    known = PHONY[1].split() if pattern is TARGET else list(TASKS)
    named = [
        (name, word)
        for name, text in texts().items()
        for words in pattern.findall(text)
        for word in words.split()
    ]
    assert len(named) >= least
    assert [each for each in named if each[1] not in known] == []


def test_what_ci_and_nightly_run_are_tasks() -> None:
    assert NIGHTLY is not None
    names = NIGHTLY[1].split() + [name for _, names in LISTS for name in names.split()]
    assert set(names) <= set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_commands_without_braces(name: str) -> None:
    assert [line for line in commands(name) if re.search(r"[{}]", line)] == []
