"""Run the suites about libraries on other stacks than the gate's, with one wheel.

    python tests/stacks.py WHEEL [STACK...]

Each stack is an environment in build/stacks while it runs. What fails is told as
`NAME: FAILED`; of pre-releases it is only listed, since their faults may be gone in the
release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from support.interpreters import interpreter

ROOT = Path(__file__).parents[1]
UV = str(Path(sys.executable).with_name("uv"))
ADD_ONS = ("packages/dlx-check", "packages/dlx-share")
EVERY = ("libraries", "interop")
SUITES = ("tests/property", "tests/interop")


class Stack(NamedTuple):
    """A Python, what uv is told, what it installs, and what is run."""

    python: str
    options: tuple[str, ...]
    groups: tuple[str, ...] = EVERY
    suites: tuple[str, ...] = SUITES
    is_listed_only: bool = False
    has_all: bool = True
    """Whether all libraries have wheels for this Python; else tests are skipped."""


STACKS = {
    "newest": Stack("3.13", (), suites=("", "tests/truth", *SUITES)),
    "3.12": Stack("3.12", ("--constraint=locks/3.12.txt",)),
    "3.14": Stack("3.14", ("--constraint=locks/3.14.txt",), has_all=False),
    "pre-releases": Stack("3.13", ("--prerelease=allow",), is_listed_only=True),
    "lowest": Stack(
        "3.11",
        ("--resolution=lowest-direct",),
        groups=("libraries",),
        suites=("", "tests/property"),
        has_all=False,
    ),
}


def environment(name: str, stack: Stack, wheel: str) -> str:
    """Make the environment of a stack anew; return its Python."""
    found = interpreter(f"python{stack.python}")
    if found is None:
        raise SystemExit(f"stacks: there is no python{stack.python}")
    folder = ROOT / "build/stacks" / name
    python = str(folder / "bin/python")
    install = [UV, "pip", "install", "--system-certs", "--no-cache", "--quiet"]
    install.append(f"--python={python}")
    asked = [f"--group={each}" for each in stack.groups]
    asked.append(f"dlx[test] @ file://{Path(wheel).resolve()}")
    for command in (
        [UV, "venv", "--quiet", "--clear", f"--python={found}", str(folder)],
        [*install, *stack.options, *asked],
        [*install, "--no-deps", *(f"./{each}" for each in ADD_ONS)],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    return python


def said(name: str, what: str, code: int) -> bool:
    """Print what came of a step, and return whether it failed where that counts."""
    listed = STACKS[name].is_listed_only
    failure = "skipped: it failed, and is only listed" if listed else "FAILED"
    print(f"{name}, {what}: {failure if code else 'ok'}", flush=True)
    return bool(code) and not listed


def run(name: str, wheel: str) -> bool:
    """Run the suites of a stack; return whether what it finds is to be mended."""
    stack = STACKS[name]
    try:
        python = environment(name, stack, wheel)
    except subprocess.CalledProcessError as error:
        print(error, file=sys.stderr)
        return said(name, "installation", error.returncode)
    variables = dict(os.environ)
    if stack.has_all:
        variables["DLX_REQUIRE_HEAVY"] = "1"
    failed = False
    for suite in stack.suites:
        command = [python, "-m", "pytest", "--quiet", "--numprocesses=2", "-rx"]
        command += ["--dist=loadfile", *filter(None, [suite])]
        code = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
        failed |= said(name, suite or "the library", code)
    # Each takes 9 GB.
    shutil.rmtree(ROOT / "build/stacks" / name)
    return failed


def main(wheel: str, *names: str) -> int:
    """Run the stacks that are named, or all."""
    return int(any([run(name, wheel) for name in names or STACKS]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
