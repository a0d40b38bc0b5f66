"""Count the instructions of dlx's hot paths, and compare with the committed counts.

    python benches/instructions.py [--check]

callgrind counts what is executed inside dlx's own extension, which depends neither on
the machine nor on the interpreter. The counts go to `results/instructions.json`;
`--check` compares with that file instead, and fails if a path has grown by more than
3 %. It requires a release build, byte for byte that of the wheel.
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dlx._core
from extensions import BUILD, HERE
from instruction_paths import FEW, MANY, RUNS
from results import RESULTS, Document, dump, versions

TARGET = RESULTS / "instructions.json"
TOLERANCE = 0.03
# The order of addresses in a cache costs an instruction or saves it.
LEAST = 2.0
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
NAME = re.compile(r"\((\d+)\)(?: (.*))?")


class Count(NamedTuple):
    """Instructions per call."""

    all: float  # in every object: interpreter, libraries, libc
    functions: dict[str, float]  # in dlx's extension alone, without callees

    @property
    def dlx(self) -> float:
        """Instructions in all functions of dlx's extension."""
        return round(sum(self.functions.values()), 1)


def executed(text: str, names: dict[str, str]) -> dict[tuple[str, str], int]:
    """Sum the instructions in a dump of callgrind, by object and function.

    `names` are those defined so far: a dump defines each only once.
    """
    found: dict[tuple[str, str], int] = defaultdict(int)
    current, inclusive = {"ob": "", "fn": ""}, False
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key in ("ob", "cob", "fn", "cfn"):
            match = NAME.fullmatch(value)
            if match is None:
                raise ValueError(f"callgrind wrote a name that is not known: {line}")
            kind, (number, name) = key[-2:], match.groups()
            if name is not None:
                names[kind + number] = name
            if key == kind:
                current[kind] = names[kind + number]
        elif key == "calls":
            inclusive = True  # the next line is the cost of the callee
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if not inclusive:
                found[current["ob"], current["fn"]] += int(line.split()[1])
            inclusive = False
    return found


def short(function: str) -> str:
    """Return a Rust function's name without crates, types of impls and generics."""
    while (less := re.sub(r"<[^<>]*>", "", function)) != function:
        function = less
    parts = [part for part in function.split("::") if part and "{{" not in part]
    return "::".join(parts[-2:])


def library() -> Path:
    """Compile `callgrind.c`."""
    target = BUILD / "callgrind.so"
    target.parent.mkdir(exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-O2", "-shared", "-fPIC"]
    command += [str(HERE / "callgrind.c"), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def dumps(where: str) -> Iterator[str]:
    """Run all paths of one process under callgrind, and yield its dumps in order."""
    command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
    with tempfile.TemporaryDirectory() as folder:
        command += [f"--callgrind-out-file={folder}/out", sys.executable]
        command += [str(HERE / "instruction_paths.py"), str(library()), where]
        environment = os.environ | ENVIRONMENT
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"the paths failed under valgrind:\n{ran.stderr}")
        parts = Path(folder).glob("out.*")
        for part in sorted(parts, key=lambda each: int(each.suffix[1:])):
            yield part.read_text()


def count() -> dict[str, dict[str, Count]]:
    """Count: by kind (path, floor) and name."""
    own = Path(dlx._core.__file__).name
    seen: dict[tuple[str, str], dict[int, Count]] = defaultdict(dict)
    for where in RUNS:
        names: dict[str, str] = {}
        for text in dumps(where):
            cost = executed(text, names)
            reason = re.search(r"Client Request: (path|floor) (\d+) (.+)", text)
            if reason is None:
                continue
            kind, n, name = reason.groups()
            inside: dict[str, float] = defaultdict(float)
            for (path, function), k in cost.items():
                if Path(path).name == own:
                    inside[short(function)] += k
            seen[kind, name][int(n)] = Count(sum(cost.values()), inside)
    counted: dict[str, dict[str, Count]] = {"path": {}, "floor": {}}
    for (kind, name), by_n in seen.items():
        few, many = by_n[FEW], by_n[MANY]
        functions = {
            function: (k - few.functions.get(function, 0)) / (MANY - FEW)
            for function, k in many.functions.items()
        }
        every = round((many.all - few.all) / (MANY - FEW), 1)
        counted[kind][name] = Count(every, functions)
    return counted


def tools() -> dict[str, str | None]:
    """Return what the counts depend on, above all the compiler."""

    def say(*command: str) -> str:
        return subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.strip()

    return {
        "rustc": say("rustc", "--version"),
        "valgrind": say("valgrind", "--version"),
        "python": platform.python_version(),
        "architecture": platform.machine(),
        **versions(("numpy", "torch", "apache-tvm-ffi")),
    }


def largest(count: Count) -> dict[str, float]:
    """Return the functions of dlx with at least 5 % of its instructions."""
    order = sorted(count.functions.items(), key=lambda each: -each[1])
    return {name: round(k, 1) for name, k in order if k >= 0.05 * count.dlx}


def document(counted: dict[str, dict[str, Count]]) -> Document:
    """Return the counts as JSON values."""
    return {
        "unit": "instructions per call",
        "tools": tools(),
        "paths": {
            name: {
                "dlx": own.dlx,
                "all": own.all,
                "floor": floor.all if (floor := counted["floor"].get(name)) else None,
                "functions": largest(own),
            }
            for name, own in counted["path"].items()
        },
    }


def differences(before: Document, now: Document) -> list[str]:
    """Return what is wrong with `now`; empty if nothing is."""
    for name in ("rustc", "architecture"):
        old, new = before["tools"][name], now["tools"][name]
        if old != new:
            return [
                f"counted with {name} {old}, and this is {new}: "
                "run `tests/tasks.py instructions` on the commit before, and commit "
                "the file"
            ]
    wrong = []
    if before["paths"].keys() != now["paths"].keys():
        wrong.append("the paths are not those of the file")
    for name in before["paths"].keys() & now["paths"].keys():
        old, new = (each["paths"][name]["dlx"] for each in (before, now))
        if new > max(old * (1 + TOLERANCE), old + LEAST):
            wrong.append(f"{name}: {old} instructions have become {new}")
    return sorted(wrong)


def main() -> None:
    """Count, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    options = parser.parse_args()
    now = document(count())
    width = max(map(len, now["paths"]))
    for name, each in now["paths"].items():
        floor = "" if each["floor"] is None else f", compared with {each['floor']:g}"
        print(
            f"{name:<{width}} {each['dlx']:7g} in dlx, {each['all']:7g} in all{floor}"
        )
    if not options.check:
        dump(now, TARGET)
        return
    before = json.loads(TARGET.read_text())
    if wrong := differences(before, now):
        others = {
            name: (old, now["tools"][name])
            for name, old in before["tools"].items()
            if old != now["tools"][name]
        }
        sys.exit(
            "\n".join(wrong)
            + (f"\nother versions than in the file: {others}" if others else "")
            + "\nIf that is meant, run `tests/tasks.py instructions`, and commit it."
        )


if __name__ == "__main__":
    main()
