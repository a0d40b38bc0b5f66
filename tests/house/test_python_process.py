"""A fork of a process that has its imports is as good as a new one."""

from __future__ import annotations

import pytest
from support.python_process import run_after, run_python

BEGIN = "import os, sys; number = 1"

ENDINGS = {
    "an output": "print(number, file=sys.stderr); print(number + 1)",
    "a code": "sys.exit(3)",
    "a signal": "os.abort()",
    "at the end": "import atexit; atexit.register(print, number)",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_a_fork_ends_as_a_new_process_does(code: str) -> None:
    assert run_after(BEGIN, code) == run_python(f"{BEGIN}\n{code}")


def test_a_fork_has_nothing_of_the_one_before() -> None:
    code = "print(number); number = 2"
    assert [run_after(BEGIN, code)[1] for _ in range(2)] == ["1\n"] * 2


def test_a_fork_has_the_variables_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for value in "ab":
        monkeypatch.setenv("DLX_OF_NOW", value)
        said.append(run_after(BEGIN, "print(os.environ['DLX_OF_NOW'])")[1])
    assert said == ["a\n", "b\n"]
