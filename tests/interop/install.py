"""Install the libraries one by one, and record those that cannot be installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(sys.prefix) / "interop-failed.json"
"""pip's last line for each library that it could not install."""


def install(requirement: str) -> str:
    """Install one; return pip's last line, or "" on success."""
    command = [sys.executable, "-m", "pip", "install", requirement]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode == 0:
        return ""
    said = ran.stderr.strip().splitlines()
    return said[-1] if said else f"pip ended with {ran.returncode}"


def main(requirements: Path) -> None:
    """Install every requirement in a file."""
    failed = {}
    for line in requirements.read_text().splitlines():
        requirement = line.partition("#")[0].strip()
        if requirement and (reason := install(requirement)):
            name = requirement.partition("=")[0].partition("[")[0]
            failed[name] = reason
            print(f"{name} cannot be installed: {reason}", file=sys.stderr)
    FAILED.write_text(json.dumps(failed))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
