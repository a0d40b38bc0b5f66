"""A Python of its own, for what ends a process."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent


def run(code: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a Python of its own."""
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    paths = os.pathsep.join([str(Path(__file__).parent), *inherited])
    own = {"PYTHONPATH": paths, "PYTHONMALLOC": "debug"}
    command, env = [sys.executable, "-c", dedent(code)], os.environ | own
    ran = subprocess.run(command, env=env, capture_output=True, text=True)
    return ran.returncode, ran.stdout, ran.stderr
