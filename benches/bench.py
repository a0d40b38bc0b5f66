"""Compare dlx with hand-written C, tvm-ffi and the frameworks' own functions.

    python benches/bench.py [--quick] [--only SUBSTRING] [--json [FILE|-]]

Builds the extensions beside it, times every row of `cases.ROWS` in one process and
prints the ratios; then `device.py` does so with its own. Rows of missing libraries say
so.
"""

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import device_cases
from cases import ROWS, Row
from extensions import EXTENSIONS, HERE
from measure import FULL, NOT_INSTALLED, QUICK, Effort, Result, Timing, measure
from objects import Scope
from results import document, dump, keep, machine
from rich.console import Console
from rich.table import Table

LIBRARIES = {
    "dlx": "dlx",
    "np": "numpy",
    "torch": "torch",
    "tvm_ffi": "tvm_ffi",
    "cuda_core": "cuda.core.utils",
    "jnp": "jax.numpy",
}


def imported(modules: dict[str, str], console: Console) -> dict[str, ModuleType]:
    """Import the installed libraries, under the names that the statements use."""
    libraries = {}
    for name, module in modules.items():
        try:
            libraries[name] = importlib.import_module(module)
        except ImportError as error:
            console.print(f"[yellow]{module} cannot be imported: {error}")
    return libraries


def load_libraries(
    console: Console,
    modules: dict[str, str] = LIBRARIES,
    extensions: dict[str, Callable[[], ModuleType]] = EXTENSIONS,
) -> dict[str, ModuleType]:
    """Import the libraries, and build and import the extensions."""
    libraries = imported(modules, console)
    for name, build in extensions.items():
        try:
            libraries[name] = build()
        except (
            RuntimeError,
            OSError,
            ImportError,
            subprocess.SubprocessError,
        ) as error:
            console.print(f"[yellow]{build.__name__} was not built: {error}")
    return libraries


def selected(rows: list[Row], substring: str) -> list[Row]:
    """Return the rows whose name contains a substring."""
    wanted = substring.lower()
    return [row for row in rows if wanted in f"{row.path} {row.against}".lower()]


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
    """Format a timing, or the reason why a side did not run."""
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
    counted = list(dict.fromkeys(name for each in results for name in each.counts))
    for name in ("its min", "ratio", *counted):
        table.add_column(name, justify="right")
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
            *(f"{result.counts[name]:g}" if result.counts else "" for name in counted),
        )
        previous = row.path
    console.print(table)


def fail_if_broken(results: list[Result]) -> None:
    """Exit with an error if a statement failed; a missing library is not a failure."""
    sides = [side for result in results for side in (result.ours, result.theirs)]
    if any(isinstance(side, str) and side != NOT_INSTALLED for side in sides):
        sys.exit("a statement failed: see the table")


def compare(rows: list[Row], options: argparse.Namespace) -> list[Result]:
    """Measure rows in this process, and print and write the results."""
    stream = sys.stderr if options.json == "-" else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 150)
    libraries = load_libraries(console)
    about = machine(libraries)
    results = run(rows, libraries, QUICK if options.quick else FULL, console)
    render(results, console)
    console.print(f"{about['cpu']}, Python {about['python']}, {about['date']}")
    if options.json == "":
        console.print(f"written to {os.path.relpath(keep(document(results, about)))}")
    elif options.json:
        dump(document(results, about), options.json)
    return results


def on_device(options: argparse.Namespace) -> int:
    """Run `device.py`, and return its exit status."""
    command = [sys.executable, str(HERE / "device.py"), f"--only={options.only}"]
    command += ["--quick"] * options.quick + ["--json"] * (options.json == "")
    stream = sys.stderr if options.json == "-" else None
    return subprocess.run(command, stdout=stream).returncode


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="",
        help="also write JSON, to build/results; - is stdout; on a device only there",
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument(
        "--only", metavar="SUBSTRING", default="", help="rows with this in their names"
    )
    options = parser.parse_args()
    rows = selected(ROWS, options.only)
    rows_on_device = selected(device_cases.ROWS, options.only)
    if not rows and not rows_on_device:
        parser.error(f"no row has {options.only!r} in its names")
    results = compare(rows, options) if rows else []
    status = on_device(options) if rows_on_device else 0
    fail_if_broken(results)
    sys.exit(status)


if __name__ == "__main__":
    main()
