"""What an installed dlx says of add-ons, none of which is installed."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module

import dlx

tensor = dlx.empty(3, "int8")
DOORS: dict[str, tuple[Callable[[], object], ...]] = {
    "check": (
        lambda: dlx.inspect(tensor),
        dlx.trace,
        dlx.live,
        lambda: import_module("dlx.check"),
    ),
    "share": (
        lambda: dlx.share(tensor),
        lambda: dlx.attach("shm:name"),
        lambda: dlx.empty(3, "int8", shared=True),
        lambda: import_module("dlx.dask"),
        lambda: import_module("dlx.mp"),
        lambda: import_module("dlx.ray"),
    ),
}


def said(door: Callable[[], object]) -> str:
    """Return what a door raises."""
    try:
        door()
    except ModuleNotFoundError as error:
        return str(error)
    raise AssertionError("the add-on is installed")


for add_on, doors in DOORS.items():
    for door in doors:
        assert f"pip install ./packages/dlx-{add_on}" in said(door), said(door)

for variables, *arguments in (
    ({}, "-m", "dlx", "info"),
    ({"DLX_TRACE": "1"}, "-c", "import dlx"),
):
    ran = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran
    assert "pip install ./packages/dlx-check" in ran.stderr, ran
