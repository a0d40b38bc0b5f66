"""The kit for a GPU machine: on any other it ends, and says what it lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_kit.groups import GROUPS, Group
from gpu_kit.processes import Environment, run_program, run_tests
from gpu_kit.run import files_of, verdict_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests/gpu_kit/run.py"
# What is installed beside pytest takes longer to import than the tests to run.
NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
no_gpu = pytest.mark.skipif(
    Path("/proc/driver/nvidia/version").exists(), reason="this machine may have a GPU"
)


# The groups.


def test_every_test_for_a_gpu_is_in_a_group() -> None:
    patterns = [pattern for group in GROUPS for pattern in group.files]
    files = [file.name for file in (ROOT / "tests/gpu").glob("test_*.py")]
    assert files
    assert [f for f in files if not any(fnmatch(f, each) for each in patterns)] == []


def test_the_groups_end_within_45_minutes() -> None:
    """A machine may be lent for no longer."""
    assert sum(group.minutes for group in GROUPS) < 45


def test_each_test_of_a_divided_file_is_in_one_group() -> None:
    """A file in two groups is divided by an expression and its opposite.

    In one group it is whole: without an expression, or by one that the file's own name
    meets, as pytest counts it among the names of its tests.
    """
    shared: dict[Path, list[str]] = {}
    for group in GROUPS:
        for file in files_of(group)[0]:
            shared.setdefault(file, []).append(group.only)
    for file, only in shared.items():
        if len(only) > 1:
            (without, those) = only
            assert without == f"not ({those})", file
        else:
            (words,) = (expression.split(" or ") for expression in only)
            assert any(word in file.name for word in words), file


# The runner.


def run_group(folder: Path, code: str, **limits: float) -> dict[str, Any]:
    """Run a file of tests as a group."""
    tests = folder / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text(f"import os, time, pytest\n{code}")
    environment = Environment(folder, Path(sys.executable))
    environment.variables["PYTHONPATH"] += f"{os.pathsep}{ROOT / 'tests'}"
    environment.variables |= NO_PLUGINS
    group = Group("it", "it", 1, test_seconds=limits.pop("test_seconds", 60))
    seconds = limits.get("seconds", 60)
    result = run_tests(group, [tests / "test_it.py"], environment, seconds)
    verdict, reason = verdict_of(result)
    return result | {"verdict": verdict, "reason": reason}


def outcomes(result: dict[str, Any]) -> dict[str, str]:
    """Give the outcome of each test by its name."""
    tests = result["tests"].items()
    return {name.partition("::")[2]: test["outcome"] for name, test in tests}


def test_what_holds_is_said_to_hold(tmp_path: Path) -> None:
    code = "def test_a(): pass\ndef test_b(): pytest.skip('no CuPy')\n"
    result = run_group(tmp_path, code)
    assert outcomes(result) == {"test_a": "passed", "test_b": "skipped"}
    assert result["verdict"] == "HELD"


def test_a_failure_is_counted(tmp_path: Path) -> None:
    result = run_group(tmp_path, "def test_a(): pass\ndef test_b(): assert 1 == 2\n")
    assert outcomes(result) == {"test_a": "passed", "test_b": "failed"}
    assert result["verdict"] == "1 FAILED"
    assert "1 == 2" in result["tests"]["tests/test_it.py::test_b"]["said"]


def test_what_was_skipped_alone_has_not_run(tmp_path: Path) -> None:
    """No group holds because nothing was tried."""
    result = run_group(tmp_path, "def test_a(): pytest.skip('no GPU')\n")
    assert (result["verdict"], result["reason"]) == ("NOT RUN", "no GPU")


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    result = run_group(tmp_path, "import nothing_of_that_name\n")
    assert result["verdict"] == "1 FAILED"


def test_a_crash_ends_one_test_and_not_its_group(tmp_path: Path) -> None:
    code = "def test_a(): pass\ndef test_b(): os.abort()\ndef test_c(): pass\n"
    result = run_group(tmp_path, code)
    expected = {"test_a": "passed", "test_b": "crashed", "test_c": "passed"}
    assert outcomes(result) == expected
    assert result["verdict"] == "1 FAILED"
    assert len(result["commands"]) == 2


def test_a_hang_ends_one_test_and_not_its_group(tmp_path: Path) -> None:
    code = "def test_a(): time.sleep(600)\ndef test_b(): pass\n"
    result = run_group(tmp_path, code, test_seconds=0.5)
    assert outcomes(result) == {"test_a": "hung", "test_b": "passed"}
    assert result["verdict"] == "1 FAILED"


def test_the_limit_of_a_group_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not known does not hold."""
    now = [0.0]
    started = tmp_path / "started"

    def sleep(seconds: float) -> None:
        """Let the limit pass once the second test is known to have started."""
        time.sleep(seconds)
        now[0] = 100.0 * started.exists()

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("gpu_kit.processes.time", clock)
    code = (
        "def test_a(): pass\n"
        f"def test_b(): open({str(started)!r}, 'w').close(); time.sleep(600)\n"
        "def test_c(): pass\n"
    )
    result = run_group(tmp_path, code, seconds=60, test_seconds=1000)
    assert outcomes(result) == {"test_a": "passed", "test_b": "stopped"}
    assert result["verdict"] == "INCOMPLETE"
    assert result["reason"] == "the time of the group was over"


@pytest.mark.parametrize(
    ("code", "seconds", "verdict"),
    [
        ("open(sys.argv[1], 'w').write('{}')", 60, "MEASURED"),
        ("sys.exit('nothing was measured, there is no CUDA GPU')", 60, "NOT RUN"),
        ("1 / 0", 60, "1 FAILED"),
        ("time.sleep(600)", 0.5, "INCOMPLETE"),
    ],
)
def test_a_program_has_a_verdict(
    tmp_path: Path, code: str, seconds: float, verdict: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys, time\n{code}\n")
    group = Group("it", "it", 1, program=(str(program), "{results}"))
    environment = Environment(tmp_path, Path(sys.executable))
    assert run_program(group, environment, seconds)["verdict"] == verdict


# The whole.


@no_gpu
def test_without_a_gpu_it_ends_and_says_not_run(tmp_path: Path) -> None:
    """Each group with the reason, in one file that has all the rest."""
    target = tmp_path / "results.txt"
    command = [sys.executable, str(RUN), "--here", "--results", str(target)]
    # Tests that are skipped need no rewritten assertions.
    variables = os.environ | NO_PLUGINS | {"PYTEST_ADDOPTS": "--assert=plain"}
    ran = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    text = target.read_text()
    document = json.loads(text.partition("```json\n")[2].rpartition("```")[0])
    said = {
        each["name"]: (each["verdict"], each["reason"]) for each in document["groups"]
    }
    assert said.keys() == {group.name for group in GROUPS}
    for name, (verdict, reason) in said.items():
        assert verdict == "NOT RUN", name
        assert "GPU" in reason or reason == "there are no tests yet", name
        assert f"kit: {name}: NOT RUN: {reason}" in ran.stdout
    assert document["machine"]["packages"]["dlx"] is not None
    assert "no gpu" in document["machine"]
    ran_tests = [each for each in document["groups"] if each.get("tests")]
    assert ran_tests
    assert all(each["commands"] for each in ran_tests)
