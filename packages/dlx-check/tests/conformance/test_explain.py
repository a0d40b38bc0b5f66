"""`--explain`: what checks do, without a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from dlx_check.cli import main
from dlx_check.conformance.reports.explain import explain, program
from dlx_check.conformance.suite import CHECKS
from dlx_check.conformance.target import Target
from dlx_check.conformance.targets import TARGETS, load
from support.python_process import run_python

from conformance.samples import numpy

NUMPY = load("numpy")
COPY = "consumer.copy.true.aligned"


def test_each_check_is_explained_with_source_and_expectation() -> None:
    """README.md, Reports: an R-number never stands alone."""
    for check in CHECKS:
        text = "\n".join(explain(check, [NUMPY]))
        assert check.id in text
        assert check.expects.text in text
        for name in check.requirements.split():
            assert f"({name})" in text


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_each_check_is_explained_for_each_library(target: Target) -> None:
    """README.md, A target: one of one dimension has no program of two."""
    for check in CHECKS:
        assert [*explain(check, [target])]


def test_a_program_finds_no_deviation_where_there_is_none() -> None:
    """README.md, Reports: where NumPy meets, the programs of most checks agree."""
    results = {each.check: each.result for each in numpy().results}
    met = [check for check in CHECKS if results[check.id] in ("meets", "fact")]
    found = {check.id: program(check, NUMPY) for check in met}
    judging = {name: text for name, (text, judges) in found.items() if judges}
    code, wrong, error = run_python(
        "import sys; sys.modules['dlx'] = None\n"
        f"for name, text in {judging!r}.items():\n"
        "    try: exec(text, {})\n"
        "    except AssertionError: print(name)\n"
        "    except Exception: pass  # refused, which is no deviation\n"
    )
    assert (code, wrong) == (0, ""), error
    assert len(judging) > 60


def test_a_program_finds_a_deviation_where_there_is_one() -> None:
    """README.md, Reports: the reproduction that a run of NumPy finds, too."""
    deviating = [each for each in numpy().results if each.failed]
    checks = {check.id: check for check in CHECKS}
    found = [program(checks[each.check], NUMPY)[0] for each in deviating]
    assert sum(each.reproduction in found for each in deviating) >= 2


def test_a_program_has_at_most_twelve_lines_without_dlx() -> None:
    """README.md, How it works: as a reproduction."""
    programs = [program(check, NUMPY)[0] for check in CHECKS]
    for text in filter(None, programs):
        assert len(text.splitlines()) <= 12, text
        assert "dlx" not in text
        compile(text, "program", "exec")
    assert sum(map(bool, programs)) > len(CHECKS) / 2


def test_explaining_imports_no_library() -> None:
    """README.md, Reports: `--explain` runs nothing, of a library neither."""
    code, _, error = run_python(
        "import sys\n"
        "from dlx_check.cli import main\n"
        f"assert main(['check', '--explain', {COPY!r}, 'torch', 'jax']) == 0\n"
        "assert not {'torch', 'jax'} & {*sys.modules}\n"
    )
    assert code == 0, error


def test_the_command_explains_all_checks_of_a_requirement(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """README.md, Reports: by name, pattern or requirement."""
    assert main(["check", "--explain", "R61"]) == 0
    out = capsys.readouterr().out
    for check in ("export", "device", "both"):
        assert f"consumer.missing.{check} (must, legal stimulus" in out
    assert "for numpy, a program that raises AssertionError" in out


def test_the_command_explains_what_a_report_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Reports: what was seen, and the reproduction that ran."""
    file = tmp_path / "numpy.jsonl"
    file.write_text("\n".join(numpy().lines()))
    result = next(each for each in numpy().results if each.failed)
    assert main(["check", "--explain", result.check, str(file)]) == 0
    out = capsys.readouterr().out
    assert f"deviates (reproduced): {result.text}" in out
    assert f"    {result.reproduction.splitlines()[-1]}" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "no check 'nonsense'\n"),
        (["producer.read-only"], "did you mean producer.read-only.flag, producer."),
        (["read-only"], "did you mean producer.read-only.flag, producer."),
        (["consumer.copi.none"], "did you mean consumer.copy.none"),
        ([f"{COPY},consumer.copy.nome"], "did you mean consumer.copy.none"),
        (["R12"], "no check 'R12' of it: a read of a freed struct shows only under"),
        ([COPY, "mylib.dlpack:target"], "--explain runs nothing"),
        ([COPY, "nothing"], "no target 'nothing'"),
    ],
)
def test_what_cannot_be_explained_is_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md: one line that says why."""
    assert main(["check", "--explain", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert "mylib" not in sys.modules


@pytest.mark.parametrize(
    "check",
    [
        "consumer.memory.unwritten",
        "producer.memory.forgotten",
        "producer.memory.returned",
        "producer.memory.returned.copy",
    ],
)
def test_what_is_seen_of_memory_has_a_program_that_judges(check: str) -> None:
    """README.md: `--explain`; the program is what a reproduction would be."""
    [row] = [each for each in CHECKS if each.id == check]
    text, judges = program(row, NUMPY)
    assert judges
    assert "assert " in text
