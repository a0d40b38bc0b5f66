"""A run that is interrupted where it is leaves no descriptor, process or thread."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from dlx_check import run, select
from dlx_check.conformance.isolate import zygotes
from dlx_check.conformance.zygote import children
from interrupts import interrupted

TIMES = 150 if os.environ.get("DLX_DISTURBED_EVERY") == "1" else 15
ONE = select(["consumer.deleter.null"])


def nothing_runs() -> bool:
    """Wait until no child and no thread is left."""
    for _ in range(400):
        if not children(os.getpid()) and threading.active_count() == 1:
            return True
        time.sleep(0.05)
    return False


def started() -> None:
    """Start the processes of a target, and wait for one of them."""
    with zygotes("conformance.disturbed:plain", "pass") as [checks, programs]:
        assert programs.answer() == {}
        assert "target" in checks.answer()


@pytest.mark.slow
def test_a_run_that_is_interrupted_anywhere_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README.md, How it works: neither processes nor descriptors or files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert nothing_runs()
    assert interrupted(lambda: run("conformance.disturbed:plain", ONE), TIMES) == 0
    assert nothing_runs()
    assert not list(tmp_path.iterdir())


def test_processes_that_are_interrupted_while_they_start_are_ended() -> None:
    """README.md, How it works: each has an owner before it starts."""
    assert nothing_runs()
    assert interrupted(started, 2 * TIMES) == 0
    assert nothing_runs()
