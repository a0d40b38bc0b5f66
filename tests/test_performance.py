"""docs/performance.md and what CI counts are made from the committed results."""

import copy
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCHES = ROOT / "benches"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a module of the benchmarks, which are scripts beside each other."""
    monkeypatch.syspath_prepend(str(BENCHES))

    def load(name: str) -> ModuleType:
        for other in BENCHES.glob("*.py"):
            monkeypatch.delitem(sys.modules, other.stem, raising=False)
        return importlib.import_module(name)

    return load


Bench = Callable[[str], ModuleType]


def test_the_tables_of_the_page_are_made_from_the_results(bench: Bench) -> None:
    """R107."""
    report = bench("report")
    text = report.PAGE.read_text()
    assert report.page(text) == text, "run `make performance`"
    assert {block[2] for block in report.BLOCK.finditer(text)} == report.blocks().keys()


def test_the_picture_is_made_from_the_results(bench: Bench) -> None:
    """R107."""
    plot, results = bench("plot"), sys.modules["results"]
    run = plot.chosen(json.loads(results.newest().read_text()))
    drawn = plot.bars(run)
    picture = plot.PICTURE.read_text()
    assert plot.digest(drawn, run["machine"]) in picture, "run `make performance`"
    for bar in drawn:
        assert f">{plot.amount(bar.ns)}</text>" in picture
    assert plot.caption(run["machine"]) in picture


@pytest.fixture
def counted(bench: Bench) -> tuple[ModuleType, dict[str, Any]]:
    """The counting script, and what is committed of it."""
    instructions = bench("instructions")
    return instructions, json.loads(instructions.TARGET.read_text())


Counted = tuple[ModuleType, dict[str, Any]]


def test_every_hot_path_has_a_count(counted: Counted) -> None:
    """R107."""
    _, before = counted
    assert before["paths"].keys() == sys.modules["instruction_paths"].PATHS.keys()
    assert all(each["dlx"] > 0 for each in before["paths"].values())


@pytest.mark.parametrize(
    ("growth", "accepted"), [(0.97, True), (1.02, True), (1.04, False)]
)
def test_a_path_that_grows_by_more_than_three_percent_is_told(
    counted: Counted, growth: float, accepted: bool
) -> None:
    """R107."""
    instructions, before = counted
    now = copy.deepcopy(before)
    path = "dlx.from_dlpack(torch)"
    now["paths"][path]["dlx"] *= growth
    wrong = instructions.differences(before, now)
    assert (not wrong) == accepted
    assert accepted or path in wrong[0]


def test_counts_of_another_compiler_are_not_compared_but_refused(
    counted: Counted,
) -> None:
    """R107."""
    instructions, before = counted
    now = copy.deepcopy(before)
    now["tools"]["rustc"] = "rustc 1.0.0"
    (wrong,) = instructions.differences(before, now)
    assert "rustc 1.0.0" in wrong


def test_callees_are_not_counted_as_the_function_that_calls_them(
    counted: Counted,
) -> None:
    """R107."""
    instructions, _ = counted
    dump = (
        "ob=(1) /lib/_core.abi3.so\nfn=(1) dlx::a\n5 10\ncob=(2) /lib/libc.so.6\n"
        "cfn=(2) malloc\ncalls=1 7\n5 99\n+1 3\n\nob=(2)\nfn=(2)\n7 99\n"
    )
    assert instructions.executed(dump, {}) == {
        ("/lib/_core.abi3.so", "dlx::a"): 13,
        ("/lib/libc.so.6", "malloc"): 99,
    }
