"""Runs every step of the lifetime tests a few hundred times, for valgrind.

The steps of torch are left out: importing it under valgrind takes longer than the rest.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "process"))

from test_lifetime import STEPS

for name, step in STEPS.items():
    if "torch" not in name and "guard" not in name:
        print(name, flush=True)
        for _ in range(200):
            step()
