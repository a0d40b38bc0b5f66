"""What docs/streams.md says of the driver during captures.

Each claim is a series of raw calls in its own process (`claims.py`); the table of
answers (`expected.py`) holds for the simulated driver, too.
"""

from __future__ import annotations

import json

import pytest
from support.python_process import run_python

from gpu.claimed import Codes
from gpu.claims import CLAIMS
from gpu.claims_memory import TWO_DEVICES
from gpu.driver import Driver
from gpu.expected import EXPECTED
from gpu.machine import Machine
from gpu.report import found


def answers(name: str) -> Codes:
    """Return the driver's answers to the calls of a claim."""
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
    if name in TWO_DEVICES and Driver().get("cuDeviceGetCount") < 2:
        pytest.skip("one GPU: claims between two are not tried")
    said = answers(name)
    if said == EXPECTED[name]:
        found(f"{name}: as documented")
    else:
        found(f"{name}: {said}, documented is {EXPECTED[name]}")
    assert said == EXPECTED[name]


def test_the_table_of_answers_is_complete() -> None:
    """Each claim has its line in the table."""
    assert EXPECTED.keys() == CLAIMS.keys()
