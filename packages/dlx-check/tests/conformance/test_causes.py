"""What a report says of one fault: one cause, its effect, and what to mend first."""

from __future__ import annotations

from functools import cache

from dlx_check import Report, run
from dlx_check.conformance.results import Cause, causes

FAULTY = "conformance.faulty"


@cache
def report(name: str) -> Report:
    """Check a library with one fault."""
    return run(f"{FAULTY}:{name}")


def grave(name: str) -> list[Cause]:
    """Return the causes that fail the run, without what NumPy does likewise."""
    found = causes(report(name).results)
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
