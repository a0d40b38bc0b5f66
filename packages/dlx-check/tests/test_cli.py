"""`python -m dlx`: what every command has in common."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import dlx
import pytest
from dlx_check.cli import COMMANDS, plain
from support.command_line import ABSENT, run, run_in, run_with

pytestmark = pytest.mark.slow

OTHERS = dict.fromkeys(("torch", "jax", "tvm_ffi", "pyarrow"), ABSENT)
"""What takes long to import, and makes the demo long."""


def test_no_command_prints_help_that_names_every_command() -> None:
    result = run()
    assert result.returncode == 0
    assert "info" in result.stdout
    assert "demo" in result.stdout


def test_version_is_the_version_of_the_package() -> None:
    assert run("--version").stdout == f"dlx {dlx.__version__}\n"


def test_another_project_of_the_same_name_is_named(tmp_path: Path) -> None:
    """README, install: PyPI's `dlx`, whose files pip has written over these."""
    package = tmp_path / "dlx"
    package.mkdir()
    for name in ("__main__.py", "cli"):
        (package / name).symlink_to(Path(dlx.__file__).parent / name)
    (package / "__init__.py").write_text("class DLX: ...")
    result = run_in(tmp_path, "info")
    assert result.returncode == 1
    assert result.stderr.startswith(f"dlx: {package / '__init__.py'} belongs to ano")
    assert "pip install ." in result.stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("nonsense").returncode == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_plain_text_without_rich(name: str) -> None:
    """The words that the command prints with rich, in the same order."""
    options = {"info": ["--no-import"], "demo": []}
    arguments = [name, *options.get(name, ["--help"])]
    plainly = run_with(*arguments, rich=ABSENT, **OTHERS)
    richly = run_with(*arguments, **OTHERS)
    assert (plainly.returncode, plainly.stderr) == (0, "")
    assert words(plainly.stdout) == words(richly.stdout)
    assert "dlx" in plainly.stdout


def words(text: str) -> list[str]:
    """The words of an output, without what a run measures."""
    return [
        word for word in re.findall(r"[^\s─-]+", text) if not re.search(r"\d", word)
    ]


def test_plain_tables_have_columns_as_wide_as_their_cells() -> None:
    """Right-justified numbers, headers of two lines, escaped markup, sections."""
    table = plain.Table(box=plain.box.SIMPLE_HEAD)
    table.add_column("name")
    table.add_column("time\nin ns", justify="right")
    table.add_row("[bold]a[/bold]", "1", style="dim", end_section=True)
    table.add_row(plain.escape("b[bold]"), "1,000")
    assert list(table.lines()) == [
        "          time",
        "name     in ns",
        "-------  -----",
        "a            1",
        "",
        "b[bold]  1,000",
    ]


@pytest.mark.parametrize("arguments", [["info", "--no-import"], ["demo"]])
def test_json_needs_no_rich(arguments: list[str]) -> None:
    result = run_with(*arguments, "--json", rich=ABSENT, **OTHERS)
    assert result.returncode == 0
    assert json.loads(result.stdout)["dlx"] == dlx.__version__


def test_help_needs_no_rich() -> None:
    assert run_with("--help", rich=ABSENT).returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("reader", ["/dev/full", "nobody"])
@pytest.mark.parametrize("arguments", ["--help", "shm", "inspect numpy:ones(3)"])
def test_output_that_is_refused_is_one_line(
    arguments: str, reader: str, unbuffered: str
) -> None:
    """A full disk is named on stderr; a reader that has gone, nowhere."""
    full = "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    nobody = "ends = os.pipe(); os.dup2(ends[1], 1); os.close(ends[0])"
    first = full if reader == "/dev/full" else nobody
    ran = run_with(*arguments.split(), first=first, unbuffered=unbuffered)
    line = "dlx: cannot write to standard output: No space left on device\n"
    assert ran.stderr == (line if reader == "/dev/full" else "")
    assert ran.returncode == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["shm", "info --no-import"])
def test_standard_streams_may_be_closed(arguments: str, closed: str) -> None:
    """As they are where a program without a terminal starts it."""
    command = f"exec {sys.executable} -m dlx {arguments} {closed}"
    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert bool(result.stdout) is (" >&-" not in f" {closed}")
