"""A driver that cannot be had is noted with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drivers import fetch


def test_a_mirror_that_does_not_answer_is_a_reason_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is left that could be taken for a driver."""
    absent = tmp_path / "absent.json"
    monkeypatch.setattr(fetch, "FOLDER", tmp_path)
    monkeypatch.setattr(fetch, "ABSENT", absent)
    monkeypatch.setenv("DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    fetch.main(["cuda-535"])
    reason = json.loads(absent.read_text())["cuda-535"]
    assert reason.startswith("apt-get ")
    assert f"cuda-535 cannot be had, its tests are skipped: {reason}" in (
        capsys.readouterr().out
    )
    assert list(tmp_path.iterdir()) == [absent]
