"""A deviation comes with a short program, which shows it without dlx."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dlx_check import Report, Result, run, select
from dlx_check.cli import main
from dlx_check.conformance.issue import write

from conformance.samples import dlx, numpy

ISSUE = "issue" + ".md"
BLOCKED = "import sys; sys.modules['dlx'] = None; exec(open(sys.argv[1]).read())"


@pytest.fixture(scope="module")
def report() -> Report:
    return numpy()


def shown(report: Report) -> list[Result]:
    return [result for result in report.results if result.reproduction]


def test_each_deviation_of_numpy_is_reproduced(report: Report) -> None:
    """README.md: evidence is a program, not the suite's word."""
    found = [result for result in report.results if result.failed]
    assert found
    assert {result.confirmed for result in found} == {"reproduced"}


def test_a_reproduction_has_at_most_twelve_lines(report: Report) -> None:
    """README.md: of the target, NumPy and ctypes."""
    for result in shown(report):
        lines = result.reproduction.strip().splitlines()
        assert 3 <= len(lines) <= 12, result.reproduction
        assert "dlx" not in result.reproduction


def test_a_reproduction_ends_as_it_says_where_there_is_no_dlx(
    report: Report, tmp_path: Path
) -> None:
    """README.md: an exception that says what is wrong, or the signal."""
    for number, result in enumerate(shown(report)):
        file = tmp_path / f"{number}.py"
        file.write_text(result.reproduction)
        command = [sys.executable, "-c", BLOCKED, str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode != 0, result.reproduction
        if result.result == "deviates":
            last = ended.stderr.strip().splitlines()[-1]
            wrong = "AssertionError", result.text.removeprefix("raises ").split(":")[0]
            assert last.startswith(wrong), last


def test_what_only_the_suite_sees_is_unconfirmed() -> None:
    """README.md: a deviation that its program does not show fails no run."""
    found = run(
        "conformance.hostile:only_beside_the_suite", select(["consumer.missing.device"])
    )
    assert [result.result for result in found.results] == ["deviates"]
    assert [result.confirmed for result in found.results] == ["unconfirmed"]
    assert found.exit_code == 0


def test_a_flag_that_is_missing_is_reproduced() -> None:
    """R39: what fails a run can be sent."""
    found = run("conformance.hostile:hiding", select(["producer.read-only.flag"]))
    assert [result.text for result in found.results] == ["READ_ONLY is not set"]
    assert [result.confirmed for result in found.results] == ["reproduced"]
    assert "assert flags & 1, 'no READ_ONLY'" in found.results[0].reproduction


def test_reproductions_are_written_with_an_issue(
    report: Report, tmp_path: Path
) -> None:
    """README.md: `--repros DIR`; malformed stimuli are no issue for anybody."""
    count = write(report, tmp_path / "numpy")
    files = sorted(path.name for path in (tmp_path / "numpy").iterdir())
    assert files == sorted(
        [ISSUE, *(f"{each.check}.py" for each in shown(report) if each.failed)]
    )
    assert count == len(files) - 1
    text = (tmp_path / "numpy" / ISSUE).read_text()
    assert "array API, `from_dlpack`" in text
    assert text.count("```python") == count


def test_an_issue_has_what_has_no_reproduction(tmp_path: Path) -> None:
    """README.md: with what was found and expected, and why no program shows it."""
    only = ["consumer.deleter.once", "consumer.dtype.*int8"]
    assert write(run("conformance.faulty:leaking", select(only)), tmp_path) == 0
    text = (tmp_path / ISSUE).read_text()
    assert "## `consumer.deleter.once` the deleter was called 0 times" in text
    assert "`consumer.dtype.int8`, `consumer.dtype.uint8` the deleter was" in text
    assert "Expected: each deleter is called once." in text
    assert text.count("No reproduction: no short program") == 2


def test_an_issue_of_a_module_that_imports_dlx_says_so(tmp_path: Path) -> None:
    """README.md: then nothing has a reproduction, and the issue is not empty."""
    only = ["producer.capsule.name"]
    write(run("conformance.hostile:raising_producer", select(only)), tmp_path)
    text = (tmp_path / ISSUE).read_text()
    assert "No reproduction: what the target imports needs dlx (Imp" in text


def test_an_issue_says_what_numpy_does_likewise(tmp_path: Path) -> None:
    """README.md, What to do with the result: it may be NumPy's to mend."""
    write(run("array_api_strict", select(["consumer.missing.*"])), tmp_path)
    text = (tmp_path / ISSUE).read_text()
    [device] = [e for e in text.split("\n## ") if "consumer.missing.device" in e]
    assert f"\nNumPy {numpy().header.numpy} likewise.\n" in device


def test_the_command_writes_reproductions(tmp_path: Path) -> None:
    """README.md: `python -m dlx check numpy --repros DIR`."""
    only = ["--only", "consumer.missing.device"]
    assert main(["check", "numpy", *only, "--repros", str(tmp_path)]) == 1
    assert (tmp_path / "numpy" / "consumer.missing.device.py").is_file()


def test_a_target_with_dlx_in_its_name_is_checked_too() -> None:
    """README.md: dlx itself is a target, and deviates in nothing."""
    found = dlx()
    assert [result for result in found.results if result.failed] == []
    assert found.exit_code == 0
