"""What the conformance suite finds in the libraries of these versions.

A version without a row fails: who moves it sees what changed, and writes the row.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from dlx_check import Report
from support.optional_libraries import missing

from .conformance import (
    TABLE,
    failed,
    load,
    of_library,
    page,
    reports,
    short,
    version_of,
)
from .report import DOCUMENT

FINDINGS = {
    ("torch", "2.15.0"): (
        "producer.copy.true.flag producer.kind.negated producer.memory.given-up "
        "producer.shape.changed consumer.missing.export table.from.refuses "
        "table.from.null-data table.to.major.newer"
    ),
    ("jax", "0.12.0.1"): (
        "producer.read-only.unversioned consumer.deleter.null "
        "consumer.copy.true.aligned consumer.copy.true.read-only "
        "consumer.missing.export consumer.old-producer.copy"
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
    ("numpy", "2.5.5"): "consumer.missing.device consumer.malformed.null-data",
    ("array_api_strict", "2.6.1 on NumPy 2.5.5"): "consumer.missing.device",
    ("dlx", "0.1.0"): "",
    ("mlx", "0.32.4"): (
        "consumer.major.newer consumer.missing.device producer.version.newest"
    ),
    ("paddle", "3.3.1"): (
        "consumer.byte-offset consumer.strides.negative consumer.deleter.no-context "
        "producer.device.pair table.from.refuses table.stream.cpu table.to.major.newer"
    ),
    ("tensorflow", "2.21.0"): (
        "producer.refuses producer.device.own producer.copy.true consumer.dtype.lanes"
    ),
    ("warp", "1.19.0"): (
        "consumer.byte-offset consumer.dtype.lanes consumer.scalar.set "
        "producer.capsule.pending-exception"
    ),
    ("onnxruntime", "1.32.0"): (
        "consumer.packed.float4_e2m1fn producer.memory.forgotten"
    ),
    ("awkward", "2.14.0 on NumPy 2.5.5"): "consumer.scalar.null",
    ("nanoarrow", "0.9.0"): "consumer.capsule.renamed consumer.dtype.lanes",
}


@pytest.fixture(scope="session")
def found(request: pytest.FixtureRequest) -> Mapping[str, Report]:
    """Check the libraries of the tests that were chosen, once."""
    chosen = {
        str(item.callspec.params["target"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module.__name__ == __name__
        and hasattr(item, "callspec")
    }
    return reports(sorted(chosen))


@pytest.mark.parametrize(("target", "version"), FINDINGS)
def test_the_suite_finds_what_was_found_by_hand(
    target: str, version: str, found: Mapping[str, Report]
) -> None:
    """Each of these was shown by a program before the suite was."""
    report = of_version(found, target, version)
    deviating = {
        result.check
        for result in report.results
        if result.result in ("deviates", "crashes")
        and result.confirmed in ("reproduced", "alone")
    }
    assert set(FINDINGS[target, version].split()) - deviating == set()
    assert [result for result in report.results if result.result == "error"] == []


def of_version(found: Mapping[str, Report], target: str, version: str) -> Report:
    """Return the report of a library, which has to be of this version."""
    if target not in found:
        missing(target)
    installed = version_of(found[target])
    if installed != version:
        pytest.fail(f"{target} is {installed} and has a row for {version} alone")
    return found[target]


def test_dlx_deviates_nowhere() -> None:
    """packages/dlx-check/README.md: dlx is a target as others are."""
    assert failed(reports(["dlx"])["dlx"]) == []


@pytest.mark.parametrize(("target", "version"), FINDINGS)
def test_the_file_says_what_a_library_does(
    target: str, version: str, found: Mapping[str, Report]
) -> None:
    """conformance.json: `tests/tasks.py conformance-report` writes it."""
    report = of_version(found, target, version)
    assert load()["libraries"][target] == of_library(report)


def test_the_table_of_the_document_is_of_the_results() -> None:
    """docs/interop.md has what `tests/tasks.py conformance-report` writes."""
    assert TABLE.findall(DOCUMENT.read_text()) == [short(load())]


def test_the_page_of_the_site_has_each_library() -> None:
    """docs/interop.md: the page "Conformance"."""
    text = page(load())
    for name, each in load()["libraries"].items():
        assert f"| {' | '.join(each['row'])} |" in text
        assert "\n".join([f"## {name}", "", *each["said"]]) in text
