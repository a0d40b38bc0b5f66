"""Install the libraries one by one, and note which cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(sys.prefix) / "interop-failed.json"
"""What pip said of the libraries that it could not install, by name."""


def install(requirement: str) -> str:
    """Install one; what pip said last, or "" if it is there."""
    command = [sys.executable, "-m", "pip", "install", requirement]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode == 0:
        return ""
    said = ran.stderr.strip().splitlines()
    return said[-1] if said else f"pip ended with {ran.returncode}"


def main(requirements: Path) -> None:
    """Install all of a file."""
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
