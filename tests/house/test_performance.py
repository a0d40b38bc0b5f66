"""docs/performance.md and what CI counts are made from the committed results."""

import copy
import json
from pathlib import Path

import instructions
import picture
import pytest
import report
import steps
import summary
from instruction_paths import PATHS
from results import Document
from support.python_process import run_python


@pytest.fixture
def counted() -> Document:
    """The counts that are committed."""
    counted: Document = json.loads(instructions.TARGET.read_text())
    return counted


def test_the_table_of_the_page_is_made_from_the_results() -> None:
    """docs/performance.md has what `benches/report.py` writes."""
    text = report.PAGE.read_text()
    assert report.page(text) == text, "run `benches/report.py`"
    assert {block[2] for block in report.BLOCK.finditer(text)} == report.blocks().keys()


def test_the_other_tables_are_a_page_that_no_file_has() -> None:
    """The site's page Measurements has each table, and what its columns mean."""
    before = {*report.PAGE.parent.rglob("*")}
    text = report.tables()
    assert {*report.PAGE.parent.rglob("*")} == before
    for heading, (said, made) in report.sections().items():
        assert f"## {heading}\n\n{said}\n\n{made}" in text
    rows = [row for kind in ("runs", "device") for row in summary.load()[kind]["rows"]]
    for path in [*(row["path"] for row in rows), *PATHS]:
        assert f"| {path} |" in text


@pytest.mark.parametrize(
    "made", picture.pictures(summary.load()), ids=lambda made: made.file.name
)
def test_each_picture_is_made_from_the_summary(made: picture.Picture) -> None:
    """docs/performance.svg and docs/launch.svg are what `benches/report.py` draws."""
    assert picture.svg(made) == made.file.read_text(), "run `benches/report.py`"


def run(**values: float | None) -> Document:
    """The full results of one Python: a row for each name, with its ratio."""
    rows = [
        {
            "path": name,
            "clock": "timeit",
            "ours": {"name": "dlx", "code": "f()", "ns": {"minimum": 1.23456789}},
            "theirs": {"name": "other", "code": "g()", "problem": "not installed"},
            "measure": "ratio",
            "value": value,
        }
        for name, value in values.items()
    ]
    return {"machine": {"command": "bench.py --json"}, "rows": rows}


def test_the_summary_has_least_times_of_one_python_and_ratios_of_all(
    tmp_path: Path,
) -> None:
    """The Python in which most rows ran comes first."""
    runs = {"3.11": run(a=0.5, b=None), "3.12": run(a=2.0, b=0.123456789)}
    (tmp_path / "runs.json").write_text(json.dumps({"runs": runs}))
    made = summary.summarize({"scaling": {"machine": "kept"}}, tmp_path)
    assert made.pop("scaling") == {"machine": "kept"}, "what was not measured stays"
    shared = {"dlx": 1.23457, "against": "other", "its": None}
    assert made == {
        "runs": {
            "machine": {"command": "bench.py --json"},
            "pythons": ["3.12", "3.11"],
            "rows": [
                {"path": "a", **shared, "ratio": {"3.12": 2.0, "3.11": 0.5}},
                {"path": "b", **shared, "ratio": {"3.12": 0.123457}},
            ],
        }
    }
    assert json.loads(summary.pretty(made)) == made


def test_what_was_counted_on_a_device_stays_beside_its_times(tmp_path: Path) -> None:
    """The site's page shows how often the library and the driver were asked."""
    measured = run(a=2.0)
    measured["rows"][0]["counts"] = {"asks": 7.0, "driver calls": 0.0}
    (tmp_path / "device.json").write_text(json.dumps({"runs": {"3.11": measured}}))
    (row,) = summary.summarize({}, tmp_path)["device"]["rows"]
    assert row["counts"] == {"asks": 7.0, "driver calls": 0.0}


def test_a_part_of_the_comparisons_is_not_summarized(tmp_path: Path) -> None:
    """The rest would be gone from the page."""
    part = run(a=0.5)
    part["machine"]["command"] += " --only torch"
    (tmp_path / "runs.json").write_text(json.dumps({"runs": {"3.11": part}}))
    with pytest.raises(ValueError, match="--only torch"):
        summary.summarize({}, tmp_path)


def test_every_hot_path_has_a_count(counted: Document) -> None:
    """Each path that is measured is also counted."""
    assert counted["paths"].keys() == PATHS.keys()
    assert all(each["dlx"] > 0 for each in counted["paths"].values())


@pytest.mark.parametrize(
    ("growth", "accepted"), [(0.97, True), (1.02, True), (1.04, False)]
)
def test_a_path_that_grows_by_more_than_three_percent_is_told(
    counted: Document, growth: float, accepted: bool
) -> None:
    """`make ci` names it; a smaller growth passes."""
    now = copy.deepcopy(counted)
    path = "dlx.from_dlpack(torch)"
    now["paths"][path]["dlx"] *= growth
    wrong = instructions.differences(counted, now)
    assert (not wrong) == accepted
    assert accepted or path in wrong[0]


def test_counts_of_another_compiler_are_not_compared_but_refused(
    counted: Document,
) -> None:
    """Counts of two compilers differ for no fault of the code."""
    now = copy.deepcopy(counted)
    now["tools"]["rustc"] = "rustc 1.0.0"
    (wrong,) = instructions.differences(counted, now)
    assert "rustc 1.0.0" in wrong


def test_callees_are_not_counted_as_the_function_that_calls_them() -> None:
    """As callgrind writes them, each behind its `calls=` line."""
    dump = (
        "ob=(1) /lib/_core.abi3.so\nfn=(1) dlx::a\n5 10\ncob=(2) /lib/libc.so.6\n"
        "cfn=(2) malloc\ncalls=1 7\n5 99\n+1 3\n\nob=(2)\nfn=(2)\n7 99\n"
    )
    assert instructions.executed(dump, {}) == {
        ("/lib/_core.abi3.so", "dlx::a"): 13,
        ("/lib/libc.so.6", "malloc"): 99,
    }


def test_steps_count_the_same_for_the_same_call() -> None:
    """docs/performance.md, What is measured: counts have no noise."""
    program = f"""
        import sys
        sys.path.insert(0, {str(steps.HERE)!r})
        import dlx, numpy as np, steps
        tool, a = steps.library(), np.arange(3.0)
        base = steps.counted(steps.nothing, tool)
        once = steps.counted(lambda: dlx.from_dlpack(a), tool)
        both = lambda: (dlx.from_dlpack(a), dlx.from_dlpack(a))
        assert base.dlx == 0 < once.dlx < once.all - base.all
        assert steps.counted(lambda: dlx.from_dlpack(a), tool).dlx == once.dlx
        assert steps.counted(both, tool).dlx == 2 * once.dlx
    """
    assert run_python(program) == (0, "", "")
