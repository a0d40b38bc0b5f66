"""The heat map of docs/interop.md."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from interop.picture import PICTURE, amount, colour, ratios, svg
from interop.report import load


def test_the_picture_is_made_from_the_results() -> None:
    """docs/interop.svg is what `tests/tasks.py interop-report` draws."""
    text = PICTURE.read_text()
    assert svg(load()["by_convert"]) == text, "run `tests/tasks.py interop-report`"
    assert ET.fromstring(text).tag.endswith("svg")


def test_each_ratio_of_a_matrix_is_a_cell_with_its_figure() -> None:
    """docs/interop.svg."""
    rows = [
        ["", "dlx", "numpy", "torch"],
        ["dlx", "1/0/0", "1/0/0 x0.67", "1/0/0 1!"],
        ["jax", "1/0/0", "1/0/0", "1/2/3 4! x12.54"],
    ]
    assert ratios(rows) == {("dlx", "numpy"): 0.67, ("jax", "torch"): 12.54}
    drawn = svg(rows)
    assert ">0.67<" in drawn
    assert ">12.5<" in drawn


@pytest.mark.parametrize(
    ("ratio", "fill"),
    [(1, "#f7f7f7"), (1 / 8, "#67a9cf"), (0.01, "#67a9cf"), (100, "#f1a340")],
)
def test_a_colour_says_how_far_a_ratio_is_from_one(ratio: float, fill: str) -> None:
    """docs/interop.svg: both ends are as dark as black text on them can be read."""
    assert colour(ratio) == fill


def test_a_ratio_that_rounds_to_one_is_written_so() -> None:
    """docs/interop.svg."""
    assert [amount(ratio) for ratio in (0.99, 0.996, 1.04)] == ["0.99", "1.0", "1.0"]
