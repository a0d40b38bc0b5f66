"""docs/performance.md and what CI counts are made from the committed results."""

import copy
import json

import instructions
import plot
import pytest
import report
from instruction_paths import PATHS
from results import Document, newest


@pytest.fixture
def counted() -> Document:
    """The counts that are committed."""
    counted: Document = json.loads(instructions.TARGET.read_text())
    return counted


def test_the_tables_of_the_page_are_made_from_the_results() -> None:
    """Speed, design.md section 9."""
    text = report.PAGE.read_text()
    assert report.page(text) == text, "run `make performance`"
    assert {block[2] for block in report.BLOCK.finditer(text)} == report.blocks().keys()


def test_the_picture_is_made_from_the_results() -> None:
    """Speed, design.md section 9."""
    run = plot.chosen(json.loads(newest().read_text()))
    drawn = plot.bars(run)
    picture = plot.PICTURE.read_text()
    assert plot.digest(drawn, run["machine"]) in picture, "run `make performance`"
    for bar in drawn:
        assert f">{plot.amount(bar.ns)}</text>" in picture
    assert plot.caption(run["machine"]) in picture


def test_every_hot_path_has_a_count(counted: Document) -> None:
    """Speed, design.md section 9."""
    assert counted["paths"].keys() == PATHS.keys()
    assert all(each["dlx"] > 0 for each in counted["paths"].values())


@pytest.mark.parametrize(
    ("growth", "accepted"), [(0.97, True), (1.02, True), (1.04, False)]
)
def test_a_path_that_grows_by_more_than_three_percent_is_told(
    counted: Document, growth: float, accepted: bool
) -> None:
    """Speed, design.md section 9."""
    now = copy.deepcopy(counted)
    path = "dlx.from_dlpack(torch)"
    now["paths"][path]["dlx"] *= growth
    wrong = instructions.differences(counted, now)
    assert (not wrong) == accepted
    assert accepted or path in wrong[0]


def test_counts_of_another_compiler_are_not_compared_but_refused(
    counted: Document,
) -> None:
    """Speed, design.md section 9."""
    now = copy.deepcopy(counted)
    now["tools"]["rustc"] = "rustc 1.0.0"
    (wrong,) = instructions.differences(counted, now)
    assert "rustc 1.0.0" in wrong


def test_callees_are_not_counted_as_the_function_that_calls_them() -> None:
    """Speed, design.md section 9."""
    dump = (
        "ob=(1) /lib/_core.abi3.so\nfn=(1) dlx::a\n5 10\ncob=(2) /lib/libc.so.6\n"
        "cfn=(2) malloc\ncalls=1 7\n5 99\n+1 3\n\nob=(2)\nfn=(2)\n7 99\n"
    )
    assert instructions.executed(dump, {}) == {
        ("/lib/_core.abi3.so", "dlx::a"): 13,
        ("/lib/libc.so.6", "malloc"): 99,
    }
