"""Checks as items of pytest: `--dlx-check`, and `dlx_check.cases`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dlx_check import cases
from dlx_check.conformance.deviations import FILE
from dlx_check.conformance.suite import CHECKS
from support.optional_libraries import requires

pytest_plugins = ["pytester"]

MUTANT = """
from conformance import reference

def target():
    reference.FAULT = {fault!r}
    return reference.target()
"""
FAULT = "ignores byte_offset"
WRONG = "consumer.byte-offset"
ENTRY = f"""
[[deviation]]
check = "{WRONG}"
result = "deviates"
reason = "to be done"
link = "https://example.org/1"
"""
COUNTED = """
import os
from conformance import reference

def target():
    with open(os.environ["IMPORTS"], "a") as file:
        print("imported", file=file)
    reference.FAULT = "ignores byte_offset"
    return reference.target()
"""
PARAMETRIZED = """
import dlx_check.conformance, pytest

@pytest.mark.parametrize("case", dlx_check.cases("mutant:target"))
def test_dlpack(case):
    case.check()
"""


@pytest.fixture(autouse=True)
def found(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a target `mutant:target` that is wrong in one way."""
    own, shared = Path(__file__).parents[1], Path(__file__).parents[4] / "tests"
    path = os.pathsep.join((f"{own}", f"{shared}", os.environ.get("PYTHONPATH", "")))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # Plugins that are installed here take more time than the checks.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("IMPORTS", str(pytester.path / "imports"))
    pytester.makepyfile(mutant=COUNTED)


def ran(
    pytester: pytest.Pytester,
    *options: str,
    check: str = "mutant:target",
    apart: bool = False,
) -> pytest.RunResult:
    """Run pytest with the plugin: in this process, or in one of its own."""
    named = [f"--dlx-check={check}"] if check else []
    run = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
    return run("-p", "dlx_check.pytest_plugin", *named, *options)


def imports(pytester: pytest.Pytester) -> int:
    """Return how many batches have begun; each imports the target."""
    return len((pytester.path / "imports").read_text().splitlines())


def test_each_check_is_an_item(pytester: pytest.Pytester) -> None:
    """README.md, pytest: the reference meets every row that needs no driver."""
    pytester.makepyfile(whole=MUTANT.format(fault=""))
    result = ran(pytester, "--collect-only", "-q", check="whole:target")
    count = len(cases("whole:target"))
    result.stdout.fnmatch_lines(["dlx::whole::consumer.copy.true.aligned"])
    result.stdout.fnmatch_lines([f"{count} tests collected*"])
    result = ran(pytester, check="whole:target")
    simulated = sum(".simulated." in each.id for each in CHECKS)
    result.assert_outcomes(passed=count - simulated, skipped=simulated)


def test_a_failure_says_what_numpy_does_likewise(pytester: pytest.Pytester) -> None:
    """README.md, pytest: array_api_strict imports by NumPy."""
    result = ran(pytester, "-k", "consumer.missing", check="array_api_strict")
    result.stdout.fnmatch_lines(["NumPy * likewise", "again: *consumer.missing.device"])


def test_a_failure_names_those_of_the_same_cause(pytester: pytest.Pytester) -> None:
    """README.md, pytest: what one change may mend."""
    pytester.makepyfile(copying=MUTANT.format(fault="shape is reversed"))
    result = ran(pytester, "-k", "producer.copy.true", check="copying:target")
    first, second, third = (
        "producer.copy.true",
        "producer.copy.true.unversioned",
        "producer.copy.true.transposed",
    )
    for others, one in (
        (f"{second}, {third}", first),
        (f"{first}, {third}", second),
        (f"{first}, {second}", third),
    ):
        result.stdout.fnmatch_lines(
            [f"the same cause, as it seems: {others}", f"again: *{one}"]
        )


def test_nothing_is_imported_to_collect(pytester: pytest.Pytester) -> None:
    """README.md, pytest: `--collect-only` starts no process."""
    assert ran(pytester, "--collect-only", "-q").ret == 0
    assert not (pytester.path / "imports").exists()


def test_dlx_is_not_imported_unless_it_is_asked_for(pytester: pytest.Pytester) -> None:
    """README.md, pytest: the plugin is loaded in every run of every project."""
    source = "import sys\ndef test_it():\n    assert 'dlx' not in sys.modules\n"
    pytester.makepyfile(test_without=source)
    ran(pytester, check="", apart=True).assert_outcomes(passed=1)


def test_a_failure_says_what_why_and_how_to_see_it(pytester: pytest.Pytester) -> None:
    """README.md, pytest: seen, source, expectation and program; no frame of dlx."""
    result = ran(pytester, "-k", WRONG)
    result.assert_outcomes(failed=1, deselected=len(cases("numpy")) - 1)
    result.stdout.fnmatch_lines(
        [
            "deviates: shows *",
            "MUST (*; R*): *",
            "expected: *",
            "effect on a user: wrong numbers",
            f"again: python -m dlx check mutant:target --only {WRONG}",
            f"*--write-deviations {FILE}",
            f"FAILED dlx::mutant::{WRONG} - Failed: deviates: shows *",
        ]
    )
    result.stdout.no_fnmatch_line("*cases.py*")
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_selected_items_run_in_one_batch(pytester: pytest.Pytester) -> None:
    """README.md, pytest: the first runs all, and the others read their results."""
    result = ran(pytester, "-k", "consumer.deleter or consumer.byte-offset")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["passed"] > 2
    assert imports(pytester) == 1


def test_what_failed_last_is_run_alone(pytester: pytest.Pytester) -> None:
    """README.md, pytest: `--lf`."""
    ran(pytester, "-k", "consumer.deleter or consumer.byte-offset")
    again = ran(pytester, "--lf", "-v")
    assert again.parseoutcomes()["failed"] == 1
    assert "passed" not in again.parseoutcomes()
    again.stdout.fnmatch_lines([f"dlx::mutant::{WRONG} FAILED*"])


def test_the_first_failure_ends_the_run(pytester: pytest.Pytester) -> None:
    """README.md, pytest: `-x`."""
    result = ran(pytester, "-x", "-k", "consumer.byte-offset or table.")
    assert result.parseoutcomes()["failed"] == 1
    assert "passed" not in result.parseoutcomes()


def test_what_is_untestable_is_skipped_with_its_reason(
    pytester: pytest.Pytester,
) -> None:
    """README.md, pytest: NumPy has no exchange table."""
    result = ran(pytester, "-k", "table.to.elements", "-rs", check="numpy")
    assert result.parseoutcomes().keys() == {"skipped", "deselected"}
    result.stdout.fnmatch_lines(["SKIPPED*no-table: no __dlpack_c_exchange_api__"])


def test_what_fails_no_run_is_an_xfail(pytester: pytest.Pytester) -> None:
    """README.md, pytest: a SHOULD, and malformed input."""
    only = "producer.empty.null or consumer.malformed.null-data"
    result = ran(pytester, "-rx", "-k", only, check="numpy")
    result.assert_outcomes(xfailed=2, deselected=len(cases("numpy")) - 2)
    result.stdout.fnmatch_lines(
        [
            "XFAIL dlx::numpy::producer.empty.null - *a SHOULD: data is not NULL",
            "XFAIL dlx::numpy::consumer.malformed.null-data - *malformed input, *",
        ]
    )
    assert ran(pytester, "--runxfail", "-k", only, check="numpy").ret == 1


@pytest.mark.parametrize("named", [True, False])
def test_what_the_file_knows_is_an_xfail(
    pytester: pytest.Pytester, named: bool
) -> None:
    """README.md, pytest: `--dlx-deviations`, or the file of the root."""
    file = pytester.path / ("known.toml" if named else FILE)
    file.write_text(ENTRY)
    options = ["--dlx-deviations=known.toml"] if named else []
    result = ran(pytester, *options, "-k", f"{WRONG} or toml", "-rx")
    assert result.ret == 0
    assert result.parseoutcomes()["xfailed"] == 1
    assert result.parseoutcomes()["passed"] == 1
    line = f"XFAIL dlx::mutant::{WRONG} - *to be done (https://example.org/1)"
    result.stdout.fnmatch_lines([line])


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            ENTRY.replace(WRONG, "consumer.deleter.null"),
            r"[[]XPASS(strict)[]] *consumer.deleter.null: it no longer deviates*",
        ),
        (ENTRY.replace("deviates", "hangs"), "*it deviates, the file says hangs"),
        (ENTRY.replace("to be done", ""), "*it has no reason"),
        (ENTRY.replace(WRONG, "consumer.nothing"), "*the suite has no such check"),
    ],
)
def test_an_entry_that_is_out_of_date_fails(
    pytester: pytest.Pytester, entry: str, says: str
) -> None:
    """README.md, pytest: always strict."""
    (pytester.path / FILE).write_text(entry)
    only = "toml or consumer.deleter.null"
    only = f"{only} or {WRONG}" if WRONG in entry else only
    result = ran(pytester, "-k", only)
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([says])


def test_a_file_about_another_target_is_left_alone(
    pytester: pytest.Pytester,
) -> None:
    """README.md, Deviations file: `target`; named by an option it is an error."""
    (pytester.path / FILE).write_text(f'target = "other"\n{ENTRY}')
    result = ran(pytester, "-k", f"{WRONG} or toml", "-rs")
    assert (result.parseoutcomes()["failed"], result.parseoutcomes()["skipped"]) == (
        1,
        1,
    )
    result.stdout.fnmatch_lines(["SKIPPED*it is about other"])
    result = ran(pytester, "-k", WRONG, f"--dlx-deviations={FILE}")
    result.stdout.fnmatch_lines(["cannot check *it is about other, not *"])


def test_a_file_that_cannot_be_read_is_a_usage_error(pytester: pytest.Pytester) -> None:
    """README.md, pytest: before anything is run."""
    (pytester.path / FILE).write_text("suit = '1.3.0'")
    result = ran(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --dlx-check: *{FILE}: no key 'suit'*"])
    assert ran(pytester, "--dlx-suite=new").ret == pytest.ExitCode.USAGE_ERROR


def test_a_target_that_cannot_be_checked_fails_once(pytester: pytest.Pytester) -> None:
    """README.md, pytest: and the other items are skipped."""
    result = ran(pytester, "-k", "consumer.deleter", check="nowhere:target")
    assert result.parseoutcomes()["failed"] == 1
    assert result.parseoutcomes()["skipped"] >= 2
    result.stdout.fnmatch_lines(["cannot check nowhere:target: ModuleNotFoundError*"])


def test_checks_newer_than_a_suite_are_left_out(pytester: pytest.Pytester) -> None:
    """README.md, pytest: `--dlx-suite`."""
    result = ran(pytester, "--dlx-suite=1.2", "--collect-only")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_two_targets_of_one_package_have_two_names(pytester: pytest.Pytester) -> None:
    """README.md, pytest: node ids are unique."""
    pytester.makepyfile(two="from mutant import target\nother = target\n")
    more = ("--dlx-check=two:other", "--dlx-check=mutant:target")
    result = ran(pytester, "--collect-only", "-q", *more, check="two:target")
    for name in ("two:target", "two:other", "mutant"):
        result.stdout.fnmatch_lines([f"dlx::{name}::{WRONG}"])


def test_tests_of_files_run_beside_the_checks(pytester: pytest.Pytester) -> None:
    """README.md, pytest: `--dlx-check` adds items, and takes none away."""
    pytester.makepyfile(test_own="def test_mine():\n    pass\n")
    result = ran(pytester, "-k", f"mine or {WRONG}")
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["failed"]) == (1, 1)


def test_cases_parametrize_a_test(pytester: pytest.Pytester) -> None:
    """README.md, pytest: readable ids, and one batch of those selected."""
    pytester.makepyfile(test_dlpack=PARAMETRIZED)
    only = "consumer.byte-offset or consumer.deleter"
    result = ran(pytester, "-k", only, "-v", check="")
    result.stdout.fnmatch_lines([f"test_dlpack.py::test_dlpack[[]{WRONG}[]] FAILED*"])
    result.stdout.fnmatch_lines(["deviates: shows *"])
    result.stdout.no_fnmatch_line("*case.check()*")
    assert imports(pytester) == 1
    result = ran(pytester, "-k", only, "-p", "no:dlx_check.pytest_plugin", check="")
    assert result.parseoutcomes()["failed"] == 1


GROUPED = """
import os, pytest

@pytest.mark.xdist_group("own")
@pytest.mark.parametrize("number", range(4))
def test_own(number):
    with open("workers", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


@pytest.mark.parametrize("how", ["load", "loadgroup", "loadscope", "worksteal"])
def test_items_are_distributed_by_xdist(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """README.md, pytest: each result is the same; loadscope runs one batch.

    loadgroup does, too, where it keeps tests of one group together: pytest-xdist 3.8
    does not with pytest 9.2.
    """
    requires("xdist")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    pytester.makepyfile(test_grouped=GROUPED)
    (pytester.path / FILE).write_text(ENTRY.replace(WRONG, "consumer.deleter.once"))
    only = "consumer.byte-offset or consumer.deleter or toml or test_own"
    options = ("-p", "no:hypothesispytest", "-n", "2", f"--dist={how}", "-k", only)
    result = ran(pytester, *options, apart=True)
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 2
    assert outcomes["passed"] > 5
    if how == "loadgroup":
        workers = set((pytester.path / "workers").read_text().split())
        assert imports(pytester) == len(workers)
    if how == "loadscope":
        assert imports(pytester) == 1
