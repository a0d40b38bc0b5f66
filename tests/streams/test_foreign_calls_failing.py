"""Each call of a table or an interface goes wrong once, in what orders streams.

`test_calls_failing.py` does so with the driver's calls, and
`tests/process/test_foreign_calls_failing.py` with tables on the CPU.
"""

from __future__ import annotations

from support.failing_answers import Answers, answers, misreported, unclean, unnoticed

WELL = ("raises", "refuses", "is interrupted")
QUESTIONS = ("current_work_stream", "method")
"""What dlx asks again later, to order what it can: nobody gets an exception then."""
NAMES_NO_STREAM = ("borrow of an interface", "launcher of an interface")
"""An interface that raises counts as naming no stream; so where there are two ways."""


def asked_again(step: str, name: str, at: int) -> bool:
    """Whether dlx may go on after an exception in this call of a function."""
    has_two_ways = "both" in step or "all" in step or step.startswith(NAMES_NO_STREAM)
    return name in QUESTIONS and (at > 0 or has_two_ways)


def wrong(step: str, found: Answers) -> list[str]:
    """Say which attempts did not come out as they should."""
    said_of: list[str] = []
    for key, said in found.items():
        name, how, at = key.split("/")
        texts = unclean(said)
        if step.startswith("inspect"):
            pass  # It says what fails, and raises nothing.
        elif how in WELL:
            again = asked_again(step, name, int(at))
            texts.append(misreported(said, how, asked_again=again))
        elif not how.startswith("reports"):
            again = name not in QUESTIONS or asked_again(step, name, int(at))
            texts.append(unnoticed(said, falls_back=again))
        said_of += [f"{key}: {text}" for text in texts if text]
    return said_of


def test_a_table_or_interface_that_goes_wrong_is_an_exception() -> None:
    """R8, R11, R21, R123: its own; nothing is kept, and the driver gets all back."""
    found = answers("failing_stream_steps")
    assert len(found) > 50
    assert {k: said for k, v in found.items() if (said := wrong(k, v))} == {}
