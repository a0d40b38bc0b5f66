"""Runs every step of the lifetime tests a few hundred times, for valgrind.

The steps of torch are left out: importing it under valgrind takes longer than the rest.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "process")]

from test_lifetime import STEPS

for name, step in STEPS.items():
    if "torch" not in name and "guard" not in name:
        print(name, flush=True)
        for _ in range(200):
            step()
