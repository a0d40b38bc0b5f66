"""A run reports every check, whatever the target does to its process."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from dlx_check import CannotCheck, CutOff, Report, Result, run, select
from dlx_check.cli import check as check_command
from dlx_check.cli import main
from dlx_check.conformance.suite import CHECKS

from conformance.samples import numpy

ONE = "consumer.deleter.null"
SOME = select(["consumer.deleter.*", "consumer.major.newer"])


@cache
def some() -> Report:
    """Return the report of NumPy in a few checks."""
    return run("numpy", SOME)


@cache
def raising_producer() -> Report:
    """Return the report of a producer that always raises."""
    checks = select(role="producer")
    return run("conformance.hostile:raising_producer", checks, reproduce=False)


@cache
def unreadable() -> Report:
    """Return the report of a library that accepts what it cannot read."""
    checks = select(["consumer.strides.negative", "consumer.dtype.complex64"])
    return run("conformance.hostile:unreadable", checks, reproduce=False)


def results(report: Report) -> dict[str, str]:
    return {result.check: result.result for result in report.results}


def test_numpy_meets_what_it_is_known_to_meet() -> None:
    """README.md: NumPy calls each deleter once and accepts none (R8, R9)."""
    found = some()
    assert results(found)[ONE] == "meets"
    assert found.header.target == "numpy"


@pytest.mark.parametrize(
    ("target", "result", "says"),
    [
        ("aborting", "crashes", "SIGABRT"),
        ("hanging", "hangs", "no end"),
        ("leaving", "crashes", "exits with code 0"),
        ("exiting", "deviates", "SystemExit"),
        ("killing", "crashes", "SIGKILL"),
        ("handling", "crashes", "SIGABRT"),
    ],
)
def test_a_target_that_ends_its_process_gets_a_full_report(
    target: str, result: str, says: str
) -> None:
    """R9 is where it ends; the checks behind it are run all the same."""
    # No program could be its evidence: the module imports dlx_check.
    found = run(f"conformance.hostile:{target}", SOME, reproduce=False)
    it = of(found, ONE)
    assert it.result == result
    assert says in it.text
    others = [value for name, value in results(found).items() if name != ONE]
    assert len(others) == len(SOME) - 1
    assert set(others) <= {"meets", "fact"}


@pytest.mark.parametrize("target", ["closing", "forking", "printing"])
def test_a_target_that_forks_or_closes_descriptors_gets_a_full_report(
    target: str,
) -> None:
    """R8: the journal is in shared memory, and a second process is ended."""
    found = results(run(f"conformance.hostile:{target}", SOME, reproduce=False))
    assert len(found) == len(SOME)
    assert set(found.values()) <= {"meets", "fact"}


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nothing", "no target 'nothing'"),
        ("cupy", "cupy cannot be checked: its tensors are on a GPU"),
        ("conformance.hostile:raising", "RuntimeError: on purpose"),
    ],
)
def test_a_target_that_cannot_be_checked_is_an_error(target: str, says: str) -> None:
    """README.md: one line that says why; test_bad_input has every way."""
    with pytest.raises(CannotCheck, match=says):
        run(target, SOME)


def test_a_report_reads_back_as_it_was_written() -> None:
    """README.md: lines of JSON, `dlx-check/1`."""
    found = some()
    assert Report.read(found.lines()) == Report.read(list(found.lines()))
    assert [*Report.read(found.lines()).lines()] == [*found.lines()]


def test_a_report_that_was_cut_off_is_refused() -> None:
    """README.md: a report without its footer is of a run that was cut off."""
    lines = [*some().lines()]
    for count in range(len(lines)):
        with pytest.raises(CutOff):
            Report.read(lines[:count])


def test_two_runs_give_the_same_report_but_for_times() -> None:
    """README.md: no address, id or time is in a result."""
    first, second = numpy(), run("numpy")
    assert first.results == second.results
    assert first.header == second.header


def test_the_command_writes_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md: `python -m dlx check numpy --only ... --json FILE`."""
    file = tmp_path / "numpy.jsonl"
    code = main(["check", "numpy", "--only", "consumer.deleter.*", "--json", str(file)])
    assert code == 0
    assert "numpy" in capsys.readouterr().out
    assert json.loads(file.read_text().splitlines()[0])["target"] == "numpy"


def test_an_unknown_target_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """README.md: 2, could not run."""
    assert main(["check", "nothing"]) == 2
    assert "no target 'nothing'" in capsys.readouterr().err


def test_a_report_is_of_one_target(capsys: pytest.CaptureFixture[str]) -> None:
    """README.md: a file with two headers could not be read back."""
    assert main(["check", "numpy", "dlx", "--json", "unused.jsonl"]) == 2
    assert "name one target" in capsys.readouterr().err


def test_a_producer_that_always_raises_meets_only_what_asks_for_that() -> None:
    """README.md, Results: what was not observed is not called met."""
    found = results(raising_producer())
    met = {name for name, result in found.items() if result == "meets"}
    assert found["producer.capsule.name"] == "deviates"
    assert found["producer.struct.kind"] == "untestable"
    assert not any(name.startswith("producer.dtype.") for name in met)
    assert met <= {
        "producer.failing.references",
        "producer.keyword-only",
        *(name for name in found if name.startswith("producer.stream.")),
        *(name for name in found if name.startswith("producer.copy.")),
    }


def of(report: Report, check: str) -> Result:
    """Return the result of one check."""
    return next(each for each in report.results if each.check == check)


def one(target: str, check: str, *, reproduce: bool = False) -> Result:
    """Run one check against a hostile target."""
    checks = select([check])
    found = run(f"conformance.hostile:{target}", checks, reproduce=reproduce)
    return found.results[0]


def test_what_is_refused_is_not_shown() -> None:
    """R63: a library that cannot show a tensor either has refused to export it."""
    assert one("unshowable", "producer.refuses").result == "meets"


def test_a_tensor_that_is_accepted_and_cannot_be_read_deviates() -> None:
    """R97: negative strides are supported or refused."""
    found = of(unreadable(), "consumer.strides.negative")
    assert (found.result, found.effect) == ("deviates", "refusal")
    assert found.text == "is accepted and cannot be read: MemoryError: no room"


def test_elements_that_numpy_cannot_have_are_not_called_equal() -> None:
    """README.md, Results: what was not observed is not called met."""
    found = of(unreadable(), "consumer.dtype.complex64")
    assert found.result == "untestable"
    assert "not-observable" in found.text


def test_a_tensor_of_another_shape_is_not_the_one_that_is_asked_for() -> None:
    """R91: who has no scalars cannot export one."""
    assert one("scalarless", "producer.scalar").result == "untestable"


def test_a_library_of_one_dimension_is_reproduced_by_one() -> None:
    """README.md: the program sends what the check sent."""
    found = one("flattening", "consumer.capsule.dropped", reproduce=True)
    assert (found.result, found.confirmed) == ("deviates", "reproduced")
    assert "reshape" not in found.reproduction


def test_an_exception_is_no_wrong_number() -> None:
    """README.md, Results: its effect is a refusal, or the class of an error."""
    results = raising_producer().results
    effects = {each.effect for each in results if each.result == "deviates"}
    assert effects == {"refusal", "class of error", "metadata"}


def test_a_suite_has_its_checks_however_its_zeros_are_written() -> None:
    """README.md: `--suite`; versions are compared as in PEP 440."""
    assert select(suite="1.3") == select(suite="1.3.0")
    assert select(suite="1.3")
    assert not select(suite="1.2.9")


def test_the_command_takes_each_role() -> None:
    """README.md: `--role`; the command lists roles without an import of NumPy."""
    assert set(check_command._ROLES) == {check.role for check in CHECKS}


@pytest.mark.parametrize("target", ["sharing", "sharing_elsewhere"])
def test_a_copy_that_shares_memory_is_seen_without_an_address(target: str) -> None:
    """R47: what has the address of another export is no copy, whatever `address` is."""
    names = ["producer.copy.true", "producer.copy.true.negative", "producer.copy.none"]
    found = run(f"conformance.hostile:{target}", select(names), reproduce=False)
    assert results(found) == {
        "producer.copy.true": "deviates",
        "producer.copy.true.negative": "deviates",
        "producer.copy.none": "meets",
    }


def test_a_type_with_a_table_alone_is_told_who_cannot_read_it() -> None:
    """R116: consumers may know the Python protocol alone; one row says so, not 80."""
    for target in ("tabled", "tabled_alone"):
        checks = select(["producer.copy.*", "producer.refuses", "table.protocol"])
        found = run(f"conformance.hostile:{target}", checks, reproduce=False)
        *others, it = found.results
        assert it.fails_run
        assert it.text == (
            "has no __dlpack__ and __dlpack_device__: NumPy and torch cannot read it"
        )
        assert {each.result for each in others} == {"untestable"}


def test_a_name_that_no_check_has_is_refused() -> None:
    """README.md: `--only`; a typing error selects nothing, and is not left out."""
    with pytest.raises(CannotCheck, match=r"did you mean producer\.copy\.true"):
        select(["consumer.copy.none", "producer.copy.tru"])


@pytest.mark.parametrize("flag", ["read-only.flag", "copy.true.flag"])
def test_a_capsule_without_flags_does_not_meet_what_asks_for_one(flag: str) -> None:
    """R37, R39: an unversioned capsule says nothing of its memory."""
    found = one("unversioned", f"producer.{flag}")
    said = "not-observable: an unversioned capsule has no flags"
    assert (found.result, found.text) == ("untestable", said)


def test_what_says_that_it_is_read_only_and_can_be_written_deviates() -> None:
    """R42: what `writable` returns is compared with what `write` does."""
    found = one("thawed", "consumer.read-only.kept")
    assert (found.result, found.effect) == ("deviates", "written though protected")
    assert found.text == "what is imported says that it is read-only, and is written to"


def test_writable_may_return_a_bool_of_numpy() -> None:
    """`help(Target)`: NumPy's comparisons return such."""
    found = one("numpy_writable", "consumer.unversioned.writable")
    said = "imports unversioned capsules as read-only"
    assert (found.result, found.text) == ("fact", said)
