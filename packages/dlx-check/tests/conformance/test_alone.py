"""Checks without others, and without other processes: --bisect and --in-process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dlx_check import CannotCheck, Target, run, select
from dlx_check.cli import main
from dlx_check.conformance.pairs import pairs

HOSTILE = "conformance.hostile"
LATER = "consumer.minor.newer"
SOME = ["--only", "consumer.failed.*,consumer.deleter.*,consumer.minor.*"]


def test_a_result_that_another_check_makes_is_named_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """README.md, How it works: `--bisect` names the pair."""
    assert main(["check", f"{HOSTILE}:remembering", *SOME, "--bisect"]) == 0
    said = capsys.readouterr().out
    assert "1 with another result only after others" in said
    pair = f"{LATER} deviates only after consumer.deleter.null"
    assert pair in said.splitlines()


def test_a_result_that_several_checks_make_is_said_to_be_that(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """README.md, How it works: where no pair suffices."""
    main(["check", f"{HOSTILE}:remembering_two", *SOME, "--bisect"])
    assert f"{LATER} deviates only after several of the " in capsys.readouterr().out


def test_a_result_that_does_not_depend_on_others_has_no_pair() -> None:
    """README.md, How it works: nothing is run again for it."""
    target = f"{HOSTILE}:remembering"
    report = run(target, select([LATER]))
    assert [each.result for each in report.results] == ["meets"]
    assert list(pairs(target, report)) == []


def own_process() -> Target:
    """Return a target that is called like its process."""
    return Target(
        name=str(os.getpid()),
        imports="import numpy",
        make="np.array",
        take="np.from_dlpack",
        show="np.array",
        address="lambda x: x.ctypes.data",
    )


def test_without_isolation_the_results_are_the_same() -> None:
    """README.md, How it works: and the target is imported in this process."""
    name = f"{__name__}:own_process"
    checks = select(["consumer.dtype.*", "consumer.missing.*", "producer.struct.*"])
    within = run(name, checks, isolated=False)
    assert within.header.target == str(os.getpid())
    without = run(name, checks, reproduce=False)
    assert without.header.target != within.header.target
    assert [(r.check, r.result, r.text) for r in within.results] == [
        (r.check, r.result, r.text) for r in without.results
    ]


def test_without_isolation_a_crash_ends_the_process_behind_its_name() -> None:
    """README.md, How it works: each check is named before it runs."""
    command = ["check", f"{HOSTILE}:aborting", "--in-process", *SOME]
    ended = subprocess.run(
        [sys.executable, "-m", "dlx", *command],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -6
    assert ended.stderr.splitlines()[-1] == "consumer.deleter.null"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("raising", "RuntimeError: on purpose"),
        ("leaving_at_once", "SystemExit: 0"),
        ("wrong", "not a Target"),
        ("wrong_setup", "its setup raises RuntimeError: no runtime"),
    ],
)
def test_without_isolation_what_cannot_be_checked_is_an_error_too(
    target: str, says: str
) -> None:
    """README.md: exit code 2, could not run."""
    with pytest.raises(CannotCheck, match=says):
        run(f"{HOSTILE}:{target}", select([LATER]), isolated=False)
