"""What counts as a difference from `docs/interop.md`: not times, versions or luck."""

from __future__ import annotations

import re

import pytest

from .cells import RATIO, Cell
from .matrix import Pair
from .report import DOCUMENT, outcomes, render
from .ways import CONVERT, COPIED, ITSELF, SHARED

VERSIONS = {"numpy": "2.4.6"}


def document(
    consumer: str, outcome: str, time: str = "1.00", version: str = "2.4.6"
) -> str:
    """Return the document of a run with one pair and two tensors."""
    cells = [
        Cell(way, case, "", result)
        for way in (CONVERT, ITSELF)
        for case, result in (("a", SHARED), ("b", outcome), (RATIO, time))
    ]
    return render([Pair("numpy", consumer, cells)], {"numpy": version}, {})


def test_a_tensor_that_goes_another_way_is_a_difference() -> None:
    """R39: another outcome of a tensor."""
    before = outcomes(document("torch", SHARED))
    for other in (COPIED, "BufferError", "misread"):
        assert outcomes(document("torch", other)) != before


def test_a_pair_that_is_missing_is_a_difference() -> None:
    """R39: a library that is not installed is not ignored."""
    nobody = render([], VERSIONS, {"torch": "ImportError: no torch"})
    assert outcomes(nobody) != outcomes(document("torch", SHARED))


@pytest.mark.parametrize(
    "other",
    [document("torch", SHARED, time="9.00"), document("torch", SHARED, version="3")],
    ids=["times", "versions"],
)
def test_times_and_versions_are_no_difference(other: str) -> None:
    """R39: times depend on the machine's load, and requirements files name versions."""
    before = document("torch", SHARED)
    assert other != before
    assert outcomes(other) == outcomes(before)


@pytest.mark.parametrize("consumer", ["jax", "tensorflow-cpu"])
def test_what_alignment_decides_is_no_difference_but_a_refusal_is(
    consumer: str,
) -> None:
    """R39: JAX and TensorFlow copy what is not aligned to 64 bytes."""
    before = outcomes(document(consumer, SHARED))
    assert outcomes(document(consumer, COPIED)) == before
    assert outcomes(document(consumer, "BufferError")) != before


def test_what_is_no_table_of_pairs_is_in_the_file_as_it_would_be_written() -> None:
    """R39: text, rules and deviations are written without a run."""

    def fixed(text: str) -> list[str]:
        lines = text.partition("\n## Versions\n")[0].splitlines()
        pairs = re.compile(r"\|[^|]*\|.*\d+/\d+/\d+|\|  \||\| ---")
        return [line for line in lines if line and not pairs.match(line)]

    assert fixed(DOCUMENT.read_text()) == fixed(render([], VERSIONS, {}))
