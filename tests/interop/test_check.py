"""What the conformance suite finds in the libraries of these versions."""

from __future__ import annotations

import importlib.util

import pytest
from dlx.check import run

FINDINGS = {
    ("torch", "2.15.0"): (
        "producer.copy.true.flag producer.kind.negated producer.memory.given-up "
        "producer.shape.changed consumer.missing.export table.from.refuses "
        "table.from.null-data table.to.major.newer"
    ),
    ("jax", "0.10.2"): (
        "producer.read-only.unversioned producer.version.newest consumer.deleter.null "
        "consumer.copy.true.aligned consumer.missing.export consumer.old-producer.copy"
    ),
    ("tvm_ffi", "0.1.15.post2"): (
        "producer.copy.true.unversioned producer.device.foreign.unversioned "
        "producer.stream.cpu.legacy consumer.asks.newest consumer.major.newer.capsule "
        "consumer.missing.export consumer.table.newer"
    ),
    ("cuda.core", "1.2.2"): (
        "producer.stream.cpu.legacy consumer.major.newer "
        "table.to.failure.exception.device table.to.major.newer"
    ),
    ("pyarrow", "26.0.1"): "producer.read-only.unversioned consumer.old-producer",
    ("numpy", "2.4.6"): (
        "consumer.missing.device consumer.dtype.unknown.error "
        "consumer.malformed.null-data"
    ),
}


@pytest.mark.parametrize(("target", "version"), FINDINGS)
def test_the_suite_finds_what_was_found_by_hand(target: str, version: str) -> None:
    """docs/check.md: each of these was shown by a program before the suite was."""
    if importlib.util.find_spec(target) is None:
        pytest.skip(f"{target} is not installed")
    report = run(target)
    if report.header.version != version:
        pytest.skip(f"{target} is {report.header.version}")
    found = {
        result.check
        for result in report.results
        if result.result in ("deviates", "crashes")
        and result.confirmed in ("reproduced", "alone")
    }
    assert set(FINDINGS[target, version].split()) - found == set()
    assert [result for result in report.results if result.result == "error"] == []
