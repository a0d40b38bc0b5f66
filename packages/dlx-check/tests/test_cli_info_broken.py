"""`python -m dlx info` beside packages that are broken: each has its row."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dlx_check.cli import child
from dlx_check.cli.command import CannotRun
from interrupts import interrupted
from support.command_line import run_in

pytestmark = pytest.mark.slow


def row(folder: Path, name: str, *arguments: str) -> Any:
    """Return the row of a framework; all other rows are there, too."""
    result = run_in(folder, "info", "--json", *arguments, PYTHONPATH=path(folder))
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    frameworks = json.loads(result.stdout)["frameworks"]
    assert {"numpy", "dask", "numba"} <= {each["name"] for each in frameworks}
    [found] = [each for each in frameworks if each["name"] == name]
    return found


def path(folder: Path) -> str:
    """Return a path of modules with this folder before all others."""
    return os.pathsep.join([str(folder), *filter(None, sys.path)])


def broken(folder: Path, module: str, source: str) -> None:
    """Make a package that runs this source."""
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text(source)


def metadata(folder: Path, distribution: str, text: bytes) -> None:
    """Make the metadata of a distribution."""
    (folder / f"{distribution}-1.dist-info").mkdir()
    (folder / f"{distribution}-1.dist-info" / "METADATA").write_bytes(text)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class E(Exception):\n __str__ = None\nraise E", "E: (its message raises"),
        ("raise ValueError('\\ud800')", "ValueError: \\ud800"),
        ("import os; os.kill(os.getpid(), 40)", "ended the process by signal 40"),
        ("import os; os.write(3, b'\\xff\\n7\\n[1]\\n'); os._exit(0)", "code 0"),
    ],
)
def test_an_import_that_raises_anything_is_said_in_its_row(
    tmp_path: Path, source: str, says: str
) -> None:
    """`python -m dlx info`, whatever a package does to who imports it."""
    broken(tmp_path, "warp", source)
    found = row(tmp_path, "warp")
    assert found["importable"] is False
    assert says in found["error"]


def test_a_message_that_no_terminal_shows_is_shown_by_its_numbers(
    tmp_path: Path,
) -> None:
    """`python -m dlx info`; what a package raises may be no text."""
    broken(tmp_path, "warp", "raise ValueError('\\ud800 \\x1b[2J')")
    place = path(tmp_path)
    result = run_in(tmp_path, "info", PYTHONPATH=place, COLUMNS="500")
    assert result.returncode == 0
    assert r"ValueError: \ud800 ?[2J" in result.stdout


@pytest.mark.parametrize("source", ["raise SystemExit", "raise OSError('no driver')"])
def test_a_parent_of_a_framework_that_raises_is_said_in_its_row(
    tmp_path: Path, source: str
) -> None:
    """`find_spec("mlx.core")` would import `mlx` in the command itself."""
    broken(tmp_path, "mlx", source)
    (tmp_path / "mlx" / "core.py").touch()
    assert row(tmp_path, "mlx", "--no-import")["installed"] is True
    found = row(tmp_path, "mlx")
    assert found["installed"] is True
    assert found["error"].startswith(source[6:13])


@pytest.mark.parametrize("text", [b"\xff\xfe\n", b"", b"Name: warp-lang\n"])
def test_metadata_that_cannot_be_read_are_said_in_their_row(
    tmp_path: Path, text: bytes
) -> None:
    """`python -m dlx info`; the framework itself may be whole."""
    broken(tmp_path, "warp", "class array: pass")
    metadata(tmp_path, "warp_lang", text)
    for arguments in ([], ["--no-import"]):
        found = row(tmp_path, "warp", *arguments)
        assert found["installed"] is True
        assert found["error"].startswith("its metadata")
        assert found["importable"] in (True, None)


def test_a_version_that_is_no_text_is_not_said(tmp_path: Path) -> None:
    """`python -m dlx info`; `__version__` may be anything."""
    broken(tmp_path, "warp", "__version__ = object()\nclass array: pass")
    metadata(tmp_path, "warp_lang", b"Name: warp-lang\nVersion: 1\n")
    assert row(tmp_path, "warp")["importable"] is True


def test_a_process_that_a_package_leaves_is_not_waited_for(tmp_path: Path) -> None:
    """`python -m dlx info`; a daemon has the pipe of what it was forked from."""
    daemon = "import os, time\nif os.fork() == 0: time.sleep(1000)\nclass array: pass"
    broken(tmp_path, "warp", daemon)
    assert row(tmp_path, "warp")["importable"] is True


def test_a_step_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m dlx info`; a step has two minutes."""
    assert child.LIMIT == 120
    monkeypatch.setattr(child, "LIMIT", 1.0)
    with pytest.raises(child.Ended, match="has no end in 1 s"):
        child.in_child(__name__, "sleeps")


def sleeps(progress: object) -> None:
    """Never return."""
    time.sleep(1000)


def cannot(progress: object) -> None:
    """Say that this cannot be run."""
    raise CannotRun("not here")


def started() -> None:
    """Run a child."""
    with pytest.raises(CannotRun, match="not here"):
        child.in_child(__name__, "cannot")


def test_a_child_that_is_interrupted_leaves_nothing() -> None:
    """`python -m dlx info`; each process has an owner before it starts."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    assert interrupted(started, 40) == 0
    assert children.read_text() == before
