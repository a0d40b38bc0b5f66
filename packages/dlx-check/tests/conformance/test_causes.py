"""What a report says of one fault: one cause, its effect, and what to mend first."""

from __future__ import annotations

from functools import cache

import pytest
from dlx_check import Report, run
from dlx_check.conformance.causes import Cause, causes
from dlx_check.conformance.run import select

FAULTY = "conformance.faulty"


@cache
def report(name: str, *only: str) -> Report:
    """Check a library with one fault."""
    return run(f"{FAULTY}:{name}", select(only))


def grave(name: str, *only: str) -> list[Cause]:
    """Return the causes that fail the run, without what NumPy does likewise."""
    found = causes(report(name, *only).results)
    return [e for e in found if e.results[0].fails_run and not e.like_numpy]


def test_strides_that_count_bytes_are_one_cause() -> None:
    """README.md, What to do with the result: not one for each way of reading."""
    [cause] = grave("strides_in_bytes")
    assert cause.effect == "wrong numbers"
    assert {each.text for each in cause.results} == {
        "strides count bytes, not elements"
    }
    assert {each.requirements[0] for each in cause.results} == {"R92"}
    checks = {each.check for each in cause.results}
    assert {"producer.dtype.float64", "producer.memory.forgotten"} <= checks
    assert all(each.confirmed == "reproduced" for each in cause.results)


def test_foreign_memory_is_in_no_report() -> None:
    """results.py: two runs say the same."""
    again = run(f"{FAULTY}:strides_in_bytes")
    assert again.results == report("strides_in_bytes").results


def test_a_leak_is_called_one_wherever_it_is_seen() -> None:
    """README.md, Results: also by rows that look at elements."""
    [cause] = grave("leaking", "consumer.deleter.once", "consumer.dtype.*int8")
    assert {each.effect for each in cause.results} == {"leak"}
    assert "consumer.dtype.int8" in {each.check for each in cause.results}


def test_memory_that_is_read_after_its_end_is_called_freed() -> None:
    """README.md, Results: it is no leak, and fails the run without a reproduction."""
    results = [
        each
        for cause in grave("freeing", "consumer.deleter.once", "consumer.capsule.*")
        for each in cause.results
    ]
    assert {each.effect for each in results} == {"memory freed"}
    checks = {each.check for each in results}
    assert {"consumer.deleter.once", "consumer.capsule.dropped"} <= checks


@pytest.mark.parametrize("name", ["keywords", "most_keywords", "copy"])
def test_keywords_that_are_missing_are_the_first_cause(name: str) -> None:
    """README.md, What to do with the result: they explain what is refused."""
    first, *others = grave(f"without_{name}")
    assert first.results[0].check.startswith("producer.keyword.")
    assert {each.requirements for each in first.results} == {("R20",)}
    assert {each.effect for each in first.results} == {"refusal"}
    assert not [e for o in others for e in o.results if "TypeError" in e.text]


def test_a_reference_that_is_given_up_twice_is_counted() -> None:
    """README.md, Results: a second deletion is seen before it ends the process."""
    [cause] = grave("releasing", "producer.references", "producer.deleter.set")
    assert cause.effect == "memory freed"
    assert [e.check for e in cause.results] == ["producer.references"]
    assert cause.results[0].text == "gives up a reference that it does not own"


def test_what_an_ended_process_said_has_no_gaps() -> None:
    """README.md, What to do with the result: so the same words are one cause."""
    only = "producer.capsule.dropped", "producer.capsule.name", "producer.empty"
    [cause] = grave("freeing_twice", *only)
    assert len(cause.results) == len(only)
    assert not any("\0" in each.text for each in cause.results)


def test_memory_that_an_export_does_not_keep_is_found() -> None:
    """R15: also where the target shares its array, and NumPy hands the place out."""
    [result] = report("unowned", "producer.memory.forgotten").results
    assert (result.result, result.effect) == ("deviates", "memory freed")
    assert result.confirmed == "reproduced"


def test_a_consumer_that_writes_to_what_it_imports_is_named() -> None:
    """R155: its elements differ, for it has changed them; no capsule has ended."""
    only = "consumer.capsule.dropped", "consumer.memory.unwritten"
    [cause] = grave("writing", *only)
    assert [each.check for each in cause.results] == [
        "consumer.memory.unwritten",
        only[0],
    ]
    assert {each.text for each in cause.results} == {
        "writes to the memory that it imports"
    }
    assert {each.requirements for each in cause.results} == {("R155",)}
    assert {each.effect for each in cause.results} == {"wrong numbers"}
    assert all(each.confirmed == "reproduced" for each in cause.results)


def test_a_copy_is_not_called_unprotected() -> None:
    """R37: nobody can write to what is protected; the flag is what is missing."""
    [cause] = grave("copying", "producer.*")
    names = [each.check for each in cause.results]
    assert names == ["producer.copy.true.flag", "producer.copy.none"]
    assert {e.text for e in cause.results} == {"copies, and IS_COPIED is not set"}
    effects = {e.effect for e in report("copying", "producer.*").results if e.failed}
    assert effects == {"metadata"}


LEAKS = ("producer.memory.returned", "producer.memory.returned.copy")


@pytest.mark.parametrize("name", ["arrays", "shared_arrays"])
def test_an_array_that_an_export_leaks_is_found(name: str) -> None:
    """R156: its own references are right, and so is the count of the tensor's."""
    found = report(f"keeping_{name}", *LEAKS, "producer.references").results
    said = {each.check: (each.result, each.effect) for each in found}
    assert said["producer.references"][0] == "meets"
    assert said[LEAKS[0]] == ("deviates", "leak")
    assert found[0].confirmed == "reproduced"


def test_copies_that_an_export_leaks_are_found() -> None:
    """R156: what copy=True has made belongs to the consumer until the deleter."""
    plain, copies = report("keeping_copies", *LEAKS).results
    assert plain.result == "meets"
    assert (copies.result, copies.effect) == ("deviates", "leak")
    assert copies.fails_run
    assert copies.confirmed == "reproduced"


def test_a_tensor_that_never_ends_is_no_leak_of_its_exports() -> None:
    """README.md, Results: what was not observed is not called wrong."""
    results = report("keeping_all", *LEAKS).results
    said = "not-observable: what `make` returns keeps its memory"
    assert [each.text for each in results] == [said, ""]


def test_a_target_that_is_slow_does_not_hang_by_large_tensors() -> None:
    """README.md, Results: it is untestable."""
    results = report("slow", *LEAKS).results
    said = "not-observable: `make` is too slow for large tensors"
    assert {each.text for each in results} == {said}
