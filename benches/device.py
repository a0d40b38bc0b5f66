"""Compare the exchange of tensors on a device with streams, without a GPU.

    python benches/device.py [--quick] [--only SUBSTRING] [--json]

The rows are in `device_cases.py`, the harness is that of `bench.py`, which runs this
program, too: the process finds a CUDA driver that does nothing. `--json` writes to
`build/results`.
"""

import argparse
import os
import sys

from bench import fail_if_broken, load_libraries, render, run, selected
from device_cases import ROWS
from extensions import on_device
from measure import FULL, QUICK
from results import document, keep, machine
from rich.console import Console

LIBRARIES = {"dlx": "dlx", "np": "numpy", "torch": "torch", "tvm_ffi": "tvm_ffi"}


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write to build/results")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument(
        "--only", metavar="SUBSTRING", default="", help="rows with this in their names"
    )
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    rows = selected(ROWS, options.only)
    libraries = load_libraries(console, LIBRARIES, {"c": on_device})
    about = machine(libraries, "benches/device.py")
    results = run(rows, libraries, QUICK if options.quick else FULL, console)
    render(results, console, "ns per call on a device, with a driver that does nothing")
    if options.json:
        target = keep(document(results, about), "device")
        console.print(f"written to {os.path.relpath(target)}")
    fail_if_broken(results)


if __name__ == "__main__":
    main()
