"""dlx passes on what the source's library says, in random programs."""

from __future__ import annotations

import os

from .session import fuzz


def test_random_programs_of_all_libraries() -> None:
    """The same ones on every machine."""
    rounds, seed = os.environ.get("FUZZ_ROUNDS", "1"), os.environ.get("SEED", "1")
    ran = fuzz(f"--rounds={rounds}", f"--seed={seed}")
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_run_whose_libraries_are_missing_says_so_at_once() -> None:
    ran = fuzz("--seconds=5", "--libraries=torch", "--only=np")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "none of these is installed: torch" in ran.stderr
