"""Engines run on this machine alone, with no network, no dashboard and no reports."""

from __future__ import annotations

import os
from pathlib import Path

# Their processes import these files, and the driver's `os.environ` is what they get.
_OWN, _SHARED = Path(__file__).parents[1], Path(__file__).parents[4] / "tests"
_paths = [str(_OWN), str(_SHARED), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(_paths)
os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
