"""Compare dlx with hand-written C, tvm-ffi and the frameworks' own functions.

    python benches/bench.py [--quick] [--only SUBSTRING] [--json FILE|-]

Builds the C extension beside it, times every row of `cases.ROWS` in one process and
prints the ratios beside their budgets. Rows of missing libraries say so.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

from cases import ROWS, Row, Scope
from measure import FULL, NOT_INSTALLED, QUICK, Effort, Result, Timing, measure
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
LIBRARIES = {"dlx": "dlx", "np": "numpy", "torch": "torch", "tvm_ffi": "tvm_ffi"}
DISTRIBUTIONS = ("dlx", "numpy", "torch", "apache-tvm-ffi")


def build_c_extension() -> Path:
    """Compile `c_exchange.c` for this Python if it is newer than its build."""
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("dlpack.h not found: install apache-tvm-ffi")
    tag = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    folder = HERE.parent / "build" / f"bench-{tag}"
    target = folder / f"c_exchange{sysconfig.get_config_var('EXT_SUFFIX')}"
    newest = max(p.stat().st_mtime for p in (*HERE.glob("*.c"), *HERE.glob("*.h")))
    if target.exists() and target.stat().st_mtime >= newest:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    includes = (
        sysconfig.get_path("include"),
        str(Path(spec.submodule_search_locations[0]) / "include"),
    )
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O3", "-shared", "-fPIC"]
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    command += [f"-I{path}" for path in includes]
    command += [str(HERE / "c_exchange.c"), "-o", str(partial)]
    subprocess.run(command, check=True)
    partial.replace(target)
    return target


def load_c_extension(path: Path) -> ModuleType:
    """Import the built extension by its path."""
    spec = importlib.util.spec_from_file_location("c_exchange", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no extension module of this Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_libraries(console: Console) -> dict[str, ModuleType]:
    """Import what is installed, under the names that the statements use."""
    libraries = {}
    for name, module in LIBRARIES.items():
        if importlib.util.find_spec(module) is None:
            console.print(f"[yellow]{module} is not installed")
        else:
            libraries[name] = importlib.import_module(module)
    try:
        libraries["c"] = load_c_extension(build_c_extension())
    except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
        console.print(f"[yellow]the C extension was not built: {error}")
    return libraries


def run(
    rows: list[Row], libraries: dict[str, ModuleType], effort: Effort, console: Console
) -> list[Result]:
    """Measure `rows` in order; only the objects of the current setup are alive."""
    results = []
    setup, scope = None, Scope()
    with console.status("") as status:
        for number, row in enumerate(rows, 1):
            status.update(f"{number}/{len(rows)} {row.path} / {row.against}")
            if row.setup is not setup:
                scope.clear()
                setup, scope = row.setup, row.setup(libraries)
            results.append(measure(row, scope, effort))
    return results


def duration(side: Timing | str, which: str = "minimum") -> str:
    """Format a timing, in ns unless it is long; a side that did not run says why."""
    if isinstance(side, str):
        return side if which == "minimum" else ""
    value = getattr(side, which)
    return f"{value:.1f}" if value < 1e5 else f"{value / 1e6:.2f} ms"


def render(
    results: list[Result],
    console: Console,
    title: str = "ns per call: dlx, hand-written C, tvm-ffi, the frameworks",
) -> None:
    """Print the table, one line per comparison."""
    table = Table(title=title)
    table.add_column("path")
    for name in ("dlx min", "dlx median"):
        table.add_column(name, justify="right")
    table.add_column("compared with")
    for name in ("its min", "ratio", "budget"):
        table.add_column(name, justify="right")
    table.add_column("")
    colour = {"met": "[green]met", "missed": "[red]missed", "": ""}
    previous = None
    for result in results:
        row = result.row
        if previous not in (None, row.path):
            table.add_section()
        form = "{:+.2f} ms" if row.absolute else "{:.3f}"
        table.add_row(
            row.path if row.path != previous else "",
            duration(result.ours),
            duration(result.ours, "median"),
            row.against,
            duration(result.theirs),
            "" if result.value is None else form.format(result.value),
            "" if row.budget is None else f"{row.budget:g}{' ms' * row.absolute}",
            colour[result.verdict],
        )
        previous = row.path
    console.print(table)
    judged = [result.verdict for result in results if result.verdict]
    console.print(f"{judged.count('met')} of {len(judged)} budgets met")


def cpu_model() -> str:
    """Return the processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def machine(libraries: dict[str, ModuleType]) -> dict[str, object]:
    """Describe where and how the numbers were taken."""
    versions: dict[str, str | None] = {}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    torch = libraries.get("torch")
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "torch_threads": torch.get_num_threads() if torch else None,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "benches/bench.py", *sys.argv[1:]]),
    }


def dump(results: list[Result], about: dict[str, object], target: str) -> None:
    """Write machine and rows as JSON to a file, or to standard output for `-`."""

    def side(name: str, code: str, timing: Timing | str) -> dict[str, object]:
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
            "budget": result.row.budget,
            "verdict": result.verdict,
        }
        for result in results
    ]
    text = json.dumps({"machine": about, "rows": rows}, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write JSON; - is stdout")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument(
        "--only", metavar="SUBSTRING", default="", help="rows with this in their names"
    )
    options = parser.parse_args()
    piped = options.json == "-"
    stream = sys.stderr if piped else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 150)
    wanted = options.only.lower()
    rows = [row for row in ROWS if wanted in f"{row.path} {row.against}".lower()]
    if not rows:
        parser.error(f"no row has {options.only!r} in its names")
    libraries = load_libraries(console)
    about = machine(libraries)
    results = run(rows, libraries, QUICK if options.quick else FULL, console)
    render(results, console)
    console.print(f"{about['cpu']}, Python {about['python']}, {about['date']}")
    if options.json:
        dump(results, about, options.json)
    sides = [side for result in results for side in (result.ours, result.theirs)]
    if any(isinstance(side, str) and side != NOT_INSTALLED for side in sides):
        sys.exit("a statement failed: see the table")


if __name__ == "__main__":
    main()
