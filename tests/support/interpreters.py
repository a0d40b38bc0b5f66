"""The Pythons of this machine.

``PYTHONPATH=tests python -m support.interpreters python3.13`` prints where one is.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# pyenv has shims on the path, which fail for a version that is not chosen; this
# project makes those in build/ (`tests/free_threaded/interpreter`).
ELSEWHERE = (Path.home() / ".pyenv/versions", ROOT / "build")


def interpreter(name: str) -> Path | None:
    """Find ``name`` on the path, or where pyenv and this project install it."""
    installed = [
        path for folder in ELSEWHERE for path in sorted(folder.glob(f"*/bin/{name}"))
    ]
    for candidate in [name, *map(str, installed)]:
        try:
            answer = subprocess.run(
                [candidate, "-c", "import sys; print(sys.executable)"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return Path(answer.stdout.strip())
    return None


if __name__ == "__main__":
    print(interpreter(sys.argv[1]) or sys.exit(f"there is no {sys.argv[1]} here"))
