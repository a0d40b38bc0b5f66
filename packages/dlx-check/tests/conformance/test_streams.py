"""Rows for streams: without a device, and on the simulated driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlx_check import run, select
from dlx_check.cli import main
from dlx_check.conformance.driver import VARIABLE
from support.simulated_driver import library_path

SIMULATED = select(["*.simulated.*"])


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no driver of the environment be used, nor one of a test stay there."""
    monkeypatch.setenv(VARIABLE, "")


@pytest.fixture
def driver(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Simulate a driver."""
    path = str(library_path())
    monkeypatch.setenv(VARIABLE, path)
    return path


def reasons(target: str) -> set[str]:
    """Return the words before the colon of what is untestable."""
    results = run(target, SIMULATED).results
    assert {result.result for result in results} == {"untestable"}
    return {result.text.partition(":")[0] for result in results}


def test_without_a_driver_nothing_is_simulated() -> None:
    """README.md, Streams: the suite needs no simulator."""
    assert reasons("dlx") == {"no-driver"}


def test_a_library_that_takes_no_other_driver_is_untestable(driver: str) -> None:
    """README.md, Streams: `Target.driver` names no variable."""
    assert "no-driver-hook" in reasons("numpy")


def test_dlx_meets_every_row_of_the_simulated_driver(driver: str) -> None:
    """R50, R55, R72 to R77, R80 to R82, R86, R126, R140, R143, R148 to R151."""
    found = {result.check: result for result in run("dlx", SIMULATED).results}
    wrong = {
        name: result.text
        for name, result in found.items()
        if result.result not in ("meets", "fact")
    }
    assert wrong == {}


def test_dlx_deviates_in_nothing_beside_the_simulated_driver(driver: str) -> None:
    """README.md, Streams: the other rows see the same driver."""
    assert [result.check for result in run("dlx").results if result.failed] == []


def test_what_dlx_does_with_a_tensor_ready_elsewhere_is_a_fact(driver: str) -> None:
    """R126, R140: its table has the stream that it names wait (docs/streams.md)."""
    (found,) = run("dlx", select(["streams.simulated.table.ready-elsewhere"])).results
    assert found.result == "fact"
    assert found.text == "has the stream that it names wait"


def test_the_command_takes_a_driver(capsys: pytest.CaptureFixture[str]) -> None:
    """README.md, Streams: `--driver FILE`."""
    only = ["--only", "streams.simulated.export.*"]
    assert main(["check", "dlx", *only, "--driver", str(library_path())]) == 0
    assert "untestable" not in capsys.readouterr().out


def test_a_driver_that_is_no_file_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md: 2, could not run."""
    assert main(["check", "dlx", "--driver", str(tmp_path / "missing.so")]) == 2
    assert "missing.so" in capsys.readouterr().err


def test_a_stream_that_means_nothing_is_reproduced() -> None:
    """R85, R83: the program needs NumPy alone, and no device."""
    checks = select(["streams.asked.cuda", "streams.asked.given"])
    assert len(checks) == 2
    for found in run("conformance.hostile:naming_no_stream", checks).results:
        assert (found.result, found.text) == ("deviates", "passes stream=0")
        assert found.confirmed == "reproduced"
