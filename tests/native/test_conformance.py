"""`dlx check` on the class of `dlpack_exchange_producer.h`, and of the example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.extensions import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("target", ["target", "example"])
def test_dlx_check_finds_no_deviation(tmp_path: Path, target: str) -> None:
    """Every row that can be asked is met, and there are many."""
    report = tmp_path / "report.jsonl"
    command = [sys.executable, "-m", "dlx_check", "check", f"native.checked:{target}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ran = subprocess.run(
        [*command, "--json", report],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    found = Counter(row["result"] for row in rows if row["kind"] == "result")
    assert set(found) <= {"meets", "untestable", "fact"}, found
    assert found["meets"] > 160
