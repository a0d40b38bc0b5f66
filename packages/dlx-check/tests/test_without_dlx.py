"""A machine on which dlx cannot be imported: the suite judges it, all else says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import dlx_check
import pytest
from dlx_check import Result, Target, run

pytestmark = pytest.mark.slow

MISSING = "raise ModuleNotFoundError(\"No module named 'dlx'\", name='dlx')"


def target() -> Target:
    """Return NumPy, as a library's own module would."""
    return Target(
        name="mine",
        imports="import numpy",
        make="np.array",
        take="np.from_dlpack",
        show="np.array",
        address="lambda x: x.ctypes.data",
        type="np.ndarray",
        distribution="numpy",
    )


def without_dlx(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where `import dlx` fails, and this module can be imported."""
    (folder / "dlx.py").write_text(MISSING)
    path = [str(folder), str(Path(__file__).parent)]
    return subprocess.run(
        [sys.executable, *arguments],
        # Other plugins of pytest take longer to import than the test to run.
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def found(results: tuple[Result, ...]) -> list[tuple[str, str, str]]:
    """Give what each check found, and how that was confirmed."""
    return [(each.check, each.result, each.confirmed) for each in results]


def test_the_suite_finds_the_same(tmp_path: Path) -> None:
    program = """
        import sys
        from dlx_check import run
        report = run("test_without_dlx:target")
        assert "dlx" not in sys.modules
        print(*report.lines(), sep="\\n")
    """
    ran = without_dlx(tmp_path, "-c", dedent(program))
    assert (ran.returncode, ran.stderr) == (0, "")
    report = dlx_check.Report.read(ran.stdout.splitlines())
    assert report.header.dlx == dlx_check.__version__
    there = run("test_without_dlx:target")
    assert found(report.results) == found(there.results)
    assert {each.result for each in report.results} >= {"meets", "deviates"}


def test_the_command_judges(tmp_path: Path) -> None:
    ran = without_dlx(
        tmp_path,
        *("-m", "dlx_check", "check", "test_without_dlx:target"),
        *("--only", "consumer.dtype.*", "--json", "report.jsonl"),
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = (tmp_path / "report.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["target"] == "mine"


def test_the_plugin_of_pytest_judges(tmp_path: Path) -> None:
    ran = without_dlx(
        tmp_path,
        *("-m", "pytest", "-p", "dlx_check.pytest_plugin"),
        *("--dlx-check=test_without_dlx:target", "-k", "consumer.dtype.int8"),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


@pytest.mark.parametrize(
    "command", ["info", "demo", "inspect numpy:ones(3)", "shm", "info --json"]
)
def test_other_commands_say_what_is_missing(tmp_path: Path, command: str) -> None:
    ran = without_dlx(tmp_path, "-m", "dlx_check", *command.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"dlx {command.split()[0]}: dlx is not installed")
    assert "`pip install .`" in line


def test_help_and_version_need_no_dlx(tmp_path: Path) -> None:
    assert "inspect" in without_dlx(tmp_path, "-m", "dlx_check", "--help").stdout
    ran = without_dlx(tmp_path, "-m", "dlx_check", "--version")
    assert ran.stdout == f"dlx {dlx_check.__version__}\n"


@pytest.mark.parametrize("name", ["inspect", "trace", "live", "check_mixin"])
def test_what_needs_dlx_says_so(tmp_path: Path, name: str) -> None:
    ran = without_dlx(tmp_path, "-c", f"import dlx_check; dlx_check.{name}")
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: dlx is not installed, which all of")
