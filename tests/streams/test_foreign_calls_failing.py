"""Each call of a table or an interface goes wrong once, in what orders streams.

`test_calls_failing.py` does so with the driver's calls, and
`tests/test_foreign_calls_failing.py` with tables on the CPU.
"""

from __future__ import annotations

from typing import Any

from support.failing_answers import Answers, answers, misreported, unclean, unnoticed

WELL = ("raises", "refuses", "is interrupted")
LEAK = ("inspect of a table", "managed_tensor_from_py_object_no_sync")
"""`dlx.inspect` calls it by ctypes, which does not say what a function returned."""
QUESTIONS = ("current_work_stream", "method")
"""What dlx asks again later, to order what it can: nobody gets an exception then."""
NAMES_NO_STREAM = ("borrow of an interface", "launcher of an interface")
"""An interface that raises counts as naming no stream."""


def wrong(step: str, found: Answers) -> list[str]:
    """Say which attempts did not come out as they should."""
    said_of: list[str] = []
    for key, said in found.items():
        name, how, at = key.split("/")
        texts = (
            [] if (step, name) == LEAK and how.endswith("succeeds") else unclean(said)
        )
        if step.startswith("inspect"):
            pass  # It says what fails, and raises nothing.
        elif how in WELL:
            texts.append(came_out(step, name, how, int(at), said))
        elif not how.startswith("reports"):
            is_question = name in QUESTIONS and at != "0"
            falls_back = is_question or name not in QUESTIONS
            texts.append(unnoticed(said, falls_back=falls_back))
        said_of += [f"{key}: {text}" for text in texts if text]
    return said_of


def came_out(step: str, name: str, how: str, at: int, said: dict[str, Any]) -> str:
    """Say how the exception of a function that failed did not come out."""
    first = at == 0 and not step.startswith(NAMES_NO_STREAM)
    return misreported(said, how, asked_again=name in QUESTIONS and not first)


def test_a_table_or_interface_that_goes_wrong_is_an_exception() -> None:
    """R8, R11, R21, R123: its own; nothing is kept, and the driver gets all back."""
    found = answers("failing_stream_steps")
    assert len(found) > 50
    assert {k: said for k, v in found.items() if (said := wrong(k, v))} == {}
