"""What came of each call that went wrong, as `failing_program` prints it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
Answers = dict[str, dict[str, Any]]


@cache
def answers(module: str, *names: str) -> dict[str, Answers]:
    """Run these steps of a module, and return what came of each attempt."""
    inherited = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([str(TESTS), inherited])
    ran = subprocess.run(
        [sys.executable, "-m", "support.failing_program", module, *names],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def unclean(said: dict[str, Any]) -> list[str]:
    """Say what no call that goes wrong may leave behind."""
    if "ended" in said:
        return [f"ended with {said['ended']}: {said['wrote']}"]
    wrong = [
        f"{name}: {said[name]}"
        for name in ("kept", "deleted", "with one set", "afterwards", "wrote")
        if said.get(name)
    ]
    wrong += [f"reported {each}" for each in said["reported others"]]
    if said["raised"] == "SystemError":
        wrong.append(said["text"])
    return wrong


def misreported(said: dict[str, Any], how: str, *, asked_again: bool) -> str:
    """Say how the exception of a function that failed did not come out.

    With ``asked_again`` dlx may have gone on without: but not if interrupted.
    """
    if not said["reached"] or said["is own"]:
        return ""
    if how == "is interrupted":
        return "" if said["reported"] else "the interrupt is lost"
    if said["raised"]:
        return "" if said["from own"] else f"replaced by {said['raised']}"
    return "" if asked_again or how == "refuses" else "it is lost"


def unnoticed(said: dict[str, Any], *, falls_back: bool) -> str:
    """Say how dlx took what a function did that breaks the rules."""
    if not said["reached"] or said["raised"] in ("BufferError", "CopyRefused"):
        return ""
    if said["raised"]:
        return f"raised {said['raised']}: {said['text']}"
    return "" if falls_back else "it went unnoticed"
