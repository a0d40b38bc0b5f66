"""`python -m dlx`: what every command has in common."""

from __future__ import annotations

import json

import dlx
import pytest
from support.command_line import ABSENT, run, run_with


def test_no_command_prints_help_that_names_every_command() -> None:
    result = run()
    assert result.returncode == 0
    assert "info" in result.stdout
    assert "demo" in result.stdout


def test_version_is_the_version_of_the_package() -> None:
    assert run("--version").stdout == f"dlx {dlx.__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("nonsense").returncode == 2


@pytest.mark.parametrize("command", ["info", "demo"])
def test_a_table_without_rich_is_one_line_that_says_what_to_install(
    command: str,
) -> None:
    result = run_with(command, rich=ABSENT)
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert 'pip install "dlx[cli]"' in line


@pytest.mark.parametrize("arguments", [["info", "--no-import"], ["demo"]])
def test_json_needs_no_rich(arguments: list[str]) -> None:
    result = run_with(*arguments, "--json", rich=ABSENT, torch=ABSENT, jax=ABSENT)
    assert result.returncode == 0
    assert json.loads(result.stdout)["dlx"] == dlx.__version__


def test_help_needs_no_rich() -> None:
    assert run_with("--help", rich=ABSENT).returncode == 0
