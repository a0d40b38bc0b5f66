"""Runs code in a separate Python process, for code that ends its process."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent


def run_python(code: str, **environment: str) -> tuple[int, str, str]:
    """Return the exit code, output and errors of a new Python process."""
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *inherited])
    own = {"PYTHONPATH": paths, "PYTHONMALLOC": "debug"}
    command, env = [sys.executable, "-c", dedent(code)], os.environ | own | environment
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    return ran.returncode, ran.stdout, ran.stderr
