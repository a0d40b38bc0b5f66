"""What changed between two reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dlx_check import Report
from dlx_check.cli import main
from dlx_check.conformance.reports.compare import compare

from conformance.samples import changed, numpy, strict

MET = "consumer.deleter.once"
WRONG = "consumer.missing.device"
SHOULD = "producer.empty.null"
FACT = "consumer.copy.none"


def without(report: Report, *checks: str) -> Report:
    results = tuple(each for each in report.results if each.check not in checks)
    return replace(report, results=results)


def test_nothing_changed_between_equal_reports() -> None:
    """README.md, Reports: seconds are no change."""
    found = compare(numpy(), replace(numpy(), seconds=99.0))
    assert [*found.lines()][-1] == "no result changed"
    assert not found.worse()


def test_a_new_deviation_is_named_with_both_results() -> None:
    """README.md, Reports: it fails the comparison."""
    found = compare(numpy(), changed(numpy(), MET, result="deviates", text="leaks"))
    assert "new deviations: 1" in [*found.lines()]
    assert f"  MUST       {MET}  meets -> deviates: leaks" in [*found.lines()]
    assert found.worse()
    assert not found.worse(frozenset([MET]))


def test_what_is_fixed_is_named() -> None:
    """README.md, Reports: the text is that of the deviation which is gone."""
    found = compare(numpy(), changed(numpy(), WRONG, result="meets", text=""))
    assert "fixed: 1" in [*found.lines()]
    line = f"  MUST       {WRONG}  deviates -> meets: raises nothing"
    assert line in [*found.lines()]
    assert not found.worse()


def test_a_crash_that_was_a_deviation_is_worse() -> None:
    """README.md, Reports: a change, and not for the better."""
    crashing = changed(numpy(), WRONG, result="crashes", text="SIGSEGV")
    found = compare(numpy(), crashing)
    assert [each.new.check for each in found.changed] == [WRONG]
    assert found.worse()
    assert not compare(crashing, numpy()).worse()


def test_a_new_deviation_from_a_should_is_named_and_fails_nothing() -> None:
    """README.md, Reports: as in a run."""
    found = compare(changed(numpy(), SHOULD, result="meets"), numpy())
    assert [each.new.check for each in found.deviates] == [SHOULD]
    assert not found.worse()


def test_what_is_said_otherwise_is_a_change() -> None:
    """README.md, Reports: a fact that is another one, a message."""
    found = compare(numpy(), changed(numpy(), FACT, text="copies"))
    assert [each.new.check for each in found.changed] == [FACT]
    assert any(line.endswith("fact: shares memory -> copies") for line in found.lines())


def test_what_is_no_longer_testable_is_not_fixed() -> None:
    """README.md, Results: untestable neither passes nor fails."""
    found = compare(numpy(), changed(numpy(), WRONG, result="untestable"))
    assert not found.fixed
    assert [each.new.check for each in found.changed] == [WRONG]


def test_a_deviation_that_is_unconfirmed_is_not_new() -> None:
    """README.md, How it works: it fails no run."""
    unsure = changed(numpy(), MET, result="deviates", confirmed="unconfirmed")
    found = compare(numpy(), unsure)
    assert not found.deviates
    assert any("meets -> deviates (unconfirmed)" in line for line in found.lines())
    assert not found.worse()
    confirmed = changed(numpy(), MET, result="deviates", confirmed="alone")
    assert compare(unsure, confirmed).worse()


def test_checks_that_were_added_or_withdrawn_fail_nothing() -> None:
    """README.md, Reports: a newer suite breaks nobody's CI."""
    older = without(numpy(), WRONG)
    older = replace(older, header=replace(older.header, suite="1.2.9"))
    lines = [*compare(older, without(numpy(), MET)).lines()]
    assert "checks added: 1" in lines
    assert "checks withdrawn: 1" in lines
    assert not compare(older, numpy()).worse()


def test_a_check_that_was_not_selected_is_not_withdrawn() -> None:
    """README.md, Reports: two runs of one suite, one with `--only`."""
    lines = [*compare(numpy(), without(numpy(), MET)).lines()]
    assert "not in the new run: 1" in lines


def test_versions_of_both_are_said() -> None:
    """README.md, Reports: of the target, dlx, NumPy, Python and the platform."""
    newer = replace(numpy(), header=replace(numpy().header, version="99.1"))
    first, second, *_ = compare(numpy(), newer).lines()
    assert first.startswith(f"numpy: {numpy().header.version} (suite ")
    assert second.startswith("  now: 99.1 (suite ")
    assert numpy().header.platform in first


def test_the_command_compares_two_files_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Reports: `--compare OLD NEW`; the exit code is of changes."""
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    worse = changed(numpy(), MET, result="deviates", text="leaks")
    for file, report in ((old, numpy()), (new, worse)):
        file.write_text("\n".join(report.lines()))
    assert main(["check", "--compare", str(old), str(new)]) == 1
    out = capsys.readouterr().out
    assert f"{MET}  meets -> deviates: leaks" in out
    assert out.splitlines()[-1] == "exit 1: checks that fail the run and did not: 1"
    assert main(["check", "--compare", str(new), str(old)]) == 0
    assert main(["check", "--compare", str(old), str(old)]) == 0


def test_a_check_that_is_newer_than_the_deviations_file_fails_no_comparison(
    tmp_path: Path,
) -> None:
    """README.md, Deviations file: `suite`, of a run as of a comparison."""
    old, new, file = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "known.toml"))
    worse = changed(numpy(), MET, result="deviates", text="leaks")
    for path, report in ((old, numpy()), (new, worse)):
        path.write_text("\n".join(report.lines()))
    file.write_text('suite = "1.2.9"')
    command = ["check", str(new), "--compare", str(old)]
    assert main(command) == 1
    assert main([*command, "--deviations", str(file)]) == 0


def test_the_command_compares_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Reports: NumPy deviates as before, which is no change."""
    old = tmp_path / "old.jsonl"
    old.write_text("\n".join(numpy().lines()))
    assert main(["check", "numpy", "--compare", str(old)]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "no result changed"


def test_reports_of_two_targets_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Reports: exit code 2."""
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text("\n".join(strict().lines()))
    new.write_text("\n".join(numpy().lines()))
    assert main(["check", str(new), "--compare", str(old)]) == 2
    assert "'array_api_strict', not of 'numpy'" in capsys.readouterr().err
