"""The form of a report in a file: its schema, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import dlx_check.conformance.reports
import pytest
from dlx_check import CutOff, Header, Report, Result, run
from dlx_check.conformance.result import RESULTS
from dlx_check.conformance.results import FORMAT
from dlx_check.conformance.suite import CHECKS
from dlx_check.conformance.suite.row import EFFECTS
from support.optional_libraries import requires

from conformance.samples import numpy

FOLDER = Path(dlx_check.conformance.reports.__file__).parent
SCHEMA: dict[str, Any] = json.loads(
    (FOLDER / f"{FORMAT.replace('/', '-')}.schema.json").read_text()
)
RESULT: dict[str, Any] = SCHEMA["$defs"]["result"]


@pytest.fixture(scope="module")
def validator() -> Any:
    checker = requires("jsonschema").Draft202012Validator
    checker.check_schema(SCHEMA)
    return checker(SCHEMA)


@pytest.mark.parametrize("target", ["numpy", "dlx", "conformance.hostile:aborting"])
def test_each_line_of_a_report_is_valid(validator: Any, target: str) -> None:
    """README.md, Reports: the schema holds for real reports."""
    for line in run(target).lines():
        validator.validate(json.loads(line))


@pytest.mark.parametrize("name", [field.name for field in fields(Result)])
def test_a_result_of_another_type_is_not_valid(validator: Any, name: str) -> None:
    """README.md, Reports: the schema refuses what no report has."""
    line = json.loads([*numpy().lines()][1])
    validator.validate(line)
    assert not validator.is_valid({**line, name: None})


def test_the_schema_has_the_fields_that_are_written() -> None:
    """README.md, Reports: a new field is described before it is written."""
    for kind, found in (("header", Header), ("result", Result)):
        described = SCHEMA["$defs"][kind]["properties"]
        assert set(described) == {"kind", *(field.name for field in fields(found))}


def test_the_schema_has_the_values_that_occur() -> None:
    """README.md, Reports: closed lists are those of the suite."""
    described = RESULT["properties"]
    assert SCHEMA["$defs"]["results"]["enum"] == [*RESULTS]
    assert described["effect"]["enum"] == [*EFFECTS]
    assert {check.role for check in CHECKS} <= {*described["role"]["enum"]}
    for name in ("level", "stimulus"):
        assert {getattr(check, name) for check in CHECKS} <= {*described[name]["enum"]}


def _edit(change: Callable[[dict[str, Any]], object], at: int = 1) -> list[str]:
    lines = [*numpy().lines()]
    line = json.loads(lines[at])
    change(line)
    lines[at] = json.dumps(line)
    return lines


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "not a report"),
        (["[]"], "no JSON object"),
        (["{"], "not JSON"),
        (["[" * 100_000], "not JSON"),
        (_edit(lambda line: line.update(format="dlx-check/2"), 0), "dlx-check/1"),
        (_edit(lambda line: line.update(target=7), 0), "target is a int"),
        (_edit(lambda line: line.pop("suite"), 0), "suite"),
        (_edit(lambda line: line.pop("text")), "text"),
        (_edit(lambda line: line.update(requirements=5)), "requirements is a int"),
        (_edit(lambda line: line.update(result="fine")), "no result is called fine"),
        (_edit(lambda line: line.update(record=[])), "record is a list"),
        (_edit(lambda line: line.pop("seconds"), -1), "seconds"),
        (_edit(lambda line: line.update(seconds="long"), -1), "long"),
        ([*numpy().lines()] * 2, "not as the format asks"),
    ],
)
def test_what_is_no_report_is_refused(lines: list[str], says: str) -> None:
    """README.md, Reports: with what is wrong."""
    with pytest.raises(CutOff, match=says):
        Report.read(lines)


def test_fields_that_are_not_known_are_left_out() -> None:
    """README.md, Reports: a newer dlx may write more."""
    for at in (0, 1, -1):
        lines = _edit(lambda line: line.update(newer=[1]), at)
        assert Report.read(lines) == Report.read(numpy().lines())


def test_fields_that_an_older_report_lacks_have_their_defaults() -> None:
    """README.md, Reports: an older report can be compared with."""
    lines = _edit(lambda line: [line.pop(n) for n in ("confirmed", "reproduction")])
    assert Report.read(lines) == Report.read(numpy().lines())
