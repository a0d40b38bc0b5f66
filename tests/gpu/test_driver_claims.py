"""What docs/streams.md says of the driver during captures (written without a GPU).

Each claim is a series of raw calls in a process of its own (`claims.py`); the table of
answers (`expected.py`) is the one that the simulated driver is held to as well.
"""

from __future__ import annotations

import json

import pytest
from support.python_process import run_python

from gpu.claims import CLAIMS, Codes
from gpu.expected import EXPECTED
from gpu.machine import Machine
from gpu.report import found


def answers(name: str) -> Codes:
    """What the driver answers to the calls of a claim."""
    code, out, errors = run_python(
        f"""
        import json
        from gpu.claims import run
        print(json.dumps(run({name!r})))
        """
    )
    assert code == 0, errors
    said: Codes = json.loads(out)
    return said


@pytest.mark.parametrize("name", CLAIMS)
def test_the_driver_answers_as_documented(gpu: Machine, name: str) -> None:
    """H6: what each step of a capture answers, and what may be asked in one."""
    said = answers(name)
    if said == EXPECTED[name]:
        found(f"{name}: as documented")
    else:
        found(f"{name}: {said}, documented is {EXPECTED[name]}")
    assert said == EXPECTED[name]


def test_the_table_of_answers_is_complete() -> None:
    """Each claim has its line."""
    assert EXPECTED.keys() == CLAIMS.keys()
