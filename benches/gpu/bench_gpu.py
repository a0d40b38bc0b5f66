"""Compare the exchange of tensors on a GPU, and time the driver's calls.

    python benches/gpu/bench_gpu.py [--quick] [--only SUBSTRING] [--json [FILE]]

The rows are in `gpu_cases.py`, the harness is that of
`benches/bench.py`. Without a CUDA GPU it says so and fails.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# The harness, and the machine of the tests.
sys.path[:0] = [str(ROOT / "benches"), str(ROOT / "tests")]

from bench import fail_if_broken, imported, render, run, selected  # noqa: E402
from driver_calls import ROUNDS, Cost, measure_calls  # noqa: E402
from gpu.driver import DriverError  # noqa: E402
from gpu.machine import machine as gpu_machine  # noqa: E402
from gpu_cases import ROWS  # noqa: E402
from measure import FULL, QUICK  # noqa: E402
from results import document, dump, machine, place  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

LIBRARIES = {
    "dlx": "dlx",
    "torch": "torch",
    "cupy": "cupy",
    "driver": "cuda.bindings.driver",
    "core": "cuda.core",
}

DISTRIBUTIONS = ("cupy-cuda12x", "cupy-cuda13x", "cuda-bindings")


def about(libraries: dict[str, ModuleType]) -> dict[str, object]:
    """Describe machine, GPU, driver, libraries and command."""
    driver = gpu_machine().driver
    installed = {each.name.lower(): each.version for each in distributions()}
    versions = {name: installed.get(name) for name in DISTRIBUTIONS}
    return machine(libraries, "benches/gpu/bench_gpu.py") | {
        "gpu": driver.device_name(),
        "cuda": driver.version(),
        "gpu_libraries": versions,
    }


def render_costs(costs: list[Cost], console: Console) -> None:
    """Print the table of the driver's calls."""
    table = Table(title="ns per call of the driver, from C")
    table.add_column("call")
    for name in ("threads", "min", "median"):
        table.add_column(name, justify="right")
    for cost in costs:
        times = (f"{cost.minimum:.0f}", f"{cost.median:.0f}")
        table.add_row(cost.call, str(cost.threads), *times)
    console.print(table)


def raw_costs(rounds: int, console: Console) -> list[Cost]:
    """Measure the driver's calls; without a compiler the other figures remain."""
    try:
        return measure_calls(rounds)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        console.print(f"[yellow]the driver's calls were not measured: {error}")
        return []


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", metavar="FILE", nargs="?", const="", help="write JSON"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument(
        "--only", metavar="SUBSTRING", default="", help="rows with this in their names"
    )
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    try:
        gpu_machine()
    except (OSError, DriverError) as error:
        sys.exit(f"nothing was measured, there is no CUDA GPU: {error}")
    rows = selected(ROWS, options.only)
    libraries = imported(LIBRARIES, console)
    described = about(libraries)
    results = run(rows, libraries, QUICK if options.quick else FULL, console)
    render(results, console, "ns per call on a GPU: dlx and the frameworks")
    costs = raw_costs(ROUNDS // 5 if options.quick else ROUNDS, console)
    render_costs(costs, console)
    console.print(f"{described['gpu']}, CUDA {described['cuda']}, {described['date']}")
    if options.json is not None:
        target = Path(options.json) if options.json else place("gpu")
        calls = {"driver_calls": [asdict(cost) for cost in costs]}
        dump(document(results, described) | calls, target)
        console.print(f"written to {os.path.relpath(target)}")
    fail_if_broken(results)


if __name__ == "__main__":
    main()
