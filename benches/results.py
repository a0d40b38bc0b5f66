"""Results as JSON: contents and files."""

import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from measure import Result, Timing

RESULTS = Path(__file__).resolve().parent / "results"
"""Committed: the counts of instructions, and the summary of everything else."""
BUILD = RESULTS.parent.parent / "build" / "results"
"""Everything measured, with medians and statements; not committed."""
DISTRIBUTIONS = (
    "dlx",
    "numpy",
    "torch",
    "apache-tvm-ffi",
    "cuda-core",
    "nanobind",
)
Document = dict[str, Any]


def cpu_model() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def versions(distributions: Iterable[str] = DISTRIBUTIONS) -> dict[str, str | None]:
    """Return the installed version of each distribution."""
    found: dict[str, str | None] = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine(
    libraries: dict[str, ModuleType], program: str = "benches/bench.py"
) -> Document:
    """Describe where and how the numbers were measured."""
    torch = libraries.get("torch")
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(),
        "torch_threads": torch.get_num_threads() if torch else None,
        "load_average": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", program, *sys.argv[1:]]),
    }


def document(results: list[Result], about: Document) -> Document:
    """Return machine and rows as JSON values."""

    def side(name: str, code: str, timing: Timing | str) -> Document:
        if isinstance(timing, str):
            return {"name": name, "code": code, "problem": timing}
        return {"name": name, "code": code, "ns": asdict(timing)}

    rows = [
        {
            "path": result.row.path,
            "clock": result.row.clock.value,
            "ours": side("dlx", result.row.ours, result.ours),
            "theirs": side(result.row.against, result.row.theirs, result.theirs),
            "measure": "difference in ms" if result.row.absolute else "ratio",
            "value": result.value,
            **({"counts": result.counts} if result.counts else {}),
        }
        for result in results
    ]
    return {"machine": about, "rows": rows}


def dump(written: Document, target: str | Path) -> None:
    """Write JSON to a file, or to standard output for `-`."""
    text = json.dumps(written, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def place(kind: str) -> Path:
    """Return the file of the full results of a kind."""
    BUILD.mkdir(parents=True, exist_ok=True)
    return BUILD / f"{kind}.json"


def keep(written: Document, kind: str = "runs") -> Path:
    """Store the run of one Python beside the others of the same day."""
    target, about = place(kind), written["machine"]
    runs = json.loads(target.read_text())["runs"] if target.exists() else {}

    def where(run: Document) -> tuple[str, str]:
        return run["machine"]["cpu"], run["machine"]["date"][:10]

    runs = {name: run for name, run in runs.items() if where(run) == where(written)}
    runs[".".join(about["python"].split(".")[:2])] = written
    dump({"runs": dict(sorted(runs.items()))}, target)
    return target
