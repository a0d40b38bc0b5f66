"""What counts as a difference from `pairs.json`: not times, versions or luck."""

from __future__ import annotations

import pytest

from .cells import RATIO, Cell
from .matrix import Pair
from .report import DOCUMENT, TABLE, Found, found, load, outcomes, page, short
from .ways import CONVERT, COPIED, ITSELF, SHARED

VERSIONS = {"numpy": "2.4.6"}


def of_run(
    consumer: str, outcome: str, time: str = "1.00", version: str = "2.4.6"
) -> Found:
    """Return what a run with one pair and two tensors finds."""
    cells = [
        Cell(way, case, "", result)
        for way in (CONVERT, ITSELF)
        for case, result in (("a", SHARED), ("b", outcome), (RATIO, time))
    ]
    return found([Pair("numpy", consumer, cells)], {"numpy": version}, {})


def test_a_tensor_that_goes_another_way_is_a_difference() -> None:
    """R39: another outcome of a tensor."""
    before = outcomes(of_run("torch", SHARED))
    for other in (COPIED, "BufferError", "misread"):
        assert outcomes(of_run("torch", other)) != before


def test_a_pair_that_is_missing_is_a_difference() -> None:
    """R39: a library that is not installed is not ignored."""
    nobody = found([], VERSIONS, {"torch": "ImportError: no torch"})
    assert outcomes(nobody) != outcomes(of_run("torch", SHARED))


@pytest.mark.parametrize(
    "other",
    [of_run("torch", SHARED, time="9.00"), of_run("torch", SHARED, version="3")],
    ids=["times", "versions"],
)
def test_times_and_versions_are_no_difference(other: Found) -> None:
    """R39: times depend on the machine's load, and requirements files name versions."""
    before = of_run("torch", SHARED)
    assert other != before
    assert outcomes(other) == outcomes(before)


@pytest.mark.parametrize("consumer", ["jax", "tensorflow-cpu"])
def test_what_alignment_decides_is_no_difference_but_a_refusal_is(
    consumer: str,
) -> None:
    """R39: JAX and TensorFlow copy what is not aligned to 64 bytes."""
    before = outcomes(of_run(consumer, SHARED))
    assert outcomes(of_run(consumer, COPIED)) == before
    assert outcomes(of_run(consumer, "BufferError")) != before


def test_the_table_of_the_document_is_of_the_results() -> None:
    """docs/interop.md has what `tests/tasks.py interop-report` writes."""
    assert TABLE.findall(DOCUMENT.read_text()) == [short(load())]


def test_the_page_of_the_site_has_both_matrices_the_rules_and_the_deviations() -> None:
    """docs/interop.md: the page "Pairs of libraries"."""
    text = page(load())
    for way in ("by_convert", "by_itself"):
        for row in load()[way]:
            assert f"| {' | '.join(row)} |" in text
    assert text.count("\n## ") == 5
