#!/usr/bin/env python3
"""Run what the Makefile has no target for, and of what some of its targets consist.

    tests/tasks.py [-n] TASK...

Without a task, it says which there are. `make` first installs what a task needs. The
first command that fails ends the run. `-n` prints the commands, and runs none.

Variables say more, as they do for `make`: `VENV=build/gate` runs a task in the
environment of the libraries, `JOBS=0` without processes of pytest beside its own,
`LOCK=` with what is newest, and each task names its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]


class Task(NamedTuple):
    """What a task is for, the targets that `make` makes first, and its commands.

    Names in braces are those of `values`.
    """

    what: str
    needs: str
    commands: list[str]


BUILT = "{venv}/built"
TOOLS = "{venv}/tools"
HEAVY = "{venv}/built {venv}/heavy"
ENGINES = "{venv}/built build/engines/built"
FREE_THREADED = "build/free_threaded_venv/built"
GATE = "build/gate/bin/python"

SIMULATION = "cargo build --quiet --locked --package driver_sim"
RACES = (
    "tests/process/test_races.py tests/process/test_races_types.py "
    "tests/process/test_threads.py"
)
# Tests that more libraries than those of `make test` have a part in. A package that is
# planted is broken beside few as beside all, which take 20 seconds each time.
WITH_LIBRARIES = (
    "tests/types tests/tensor tests/import tests/adapters tests/exchange tests/classes "
    "tests/lend tests/convert tests/house/test_examples.py tests/house/test_interop.py "
    "tests/house/test_readme.py tests/native/test_torch_tensors.py "
    "tests/native/test_results.py tests/patches packages/dlx-*/tests/test_*.py "
    "--deselect=packages/dlx-check/tests/test_cli_info_broken.py "
    "tests/process/test_cycles.py tests/process/test_depth.py "
    "tests/process/test_foreign_calls_failing.py tests/process/test_lifetime.py "
    "tests/process/test_races.py tests/process/test_threads.py"
)
# Of these folders, libraries have a part in some, and `DLX_EVERY` makes others longer.
STREAMS_AGAIN = (
    "tests/streams/test_borrow.py tests/streams/test_c_launch.py "
    "tests/streams/test_copies.py tests/streams/test_fork.py "
    "tests/streams/test_launcher.py tests/streams/test_programs.py "
    "tests/streams/test_stream_argument.py"
)
CHECK = "packages/dlx-check/tests/conformance"
CHECK_AGAIN = (
    f"{CHECK}/test_mutants.py {CHECK}/test_pytest_plugin.py {CHECK}/test_report*.py "
    f"{CHECK}/test_site.py"
)

TASKS = {
    # Of `make test` and `make check`.
    "test-library": Task(
        "the tests that need neither a driver nor hours",
        BUILT,
        ["cargo test --quiet --locked", SIMULATION, "{pytest}"],
    ),
    "test-streams": Task(
        "the tests of streams, on the simulated driver",
        BUILT,
        [
            SIMULATION,
            "{pytest} --dist=worksteal tests/streams",
            "{python} -m pytest --collect-only --quiet tests/gpu >/dev/null",
        ],
    ),
    "test-truth": Task("the tests of the fuzzer", BUILT, ["{pytest} tests/truth"]),
    "test-conformance": Task(
        "the tests of `dlx check`",
        BUILT,
        ["{pytest} packages/dlx-check/tests/conformance"],
    ),
    "quick": Task(
        "the tests but for the slow ones",
        BUILT,
        ["cargo test --quiet --locked", SIMULATION, '{pytest} -m "not slow"'],
    ),
    # Of `make ci` alone. One process of xdist gives the order of `make test`.
    "ci-gate": Task(
        "the tests that libraries have a part in, in build/gate",
        "gate",
        [
            SIMULATION,
            f"{GATE} -m pytest --numprocesses=1 --dist=loadfile {WITH_LIBRARIES}",
            f"{GATE} -m pytest {STREAMS_AGAIN}",
            f"{GATE} -m pytest {CHECK_AGAIN}",
        ],
    ),
    "ci-oldest": Task(
        "the tests about NumPy, torch and tvm-ffi, on the oldest Python",
        HEAVY,
        [
            "{pytest} tests/adapters tests/exchange tests/native"
            " --ignore=tests/native/test_compilers.py"
            " --ignore=tests/native/test_sanitizers.py"
        ],
    ),
    "instructions-check": Task(
        "compare the instructions of the hot paths with the committed counts",
        HEAVY,
        ["{python} benches/instructions.py --check"],
    ),
    # Libraries.
    "interop": Task(
        "every library to every other, compared with tests/interop/pairs.json",
        "gate",
        [f"{GATE} -m pytest tests/interop"],
    ),
    "property": Task(
        "compare what dlx says of every library's tensors with what that says",
        "gate",
        [f"{GATE} -m pytest tests/property"],
    ),
    "interop-report": Task(
        "write what every library does to every other",
        "gate",
        [f"PYTHONPATH=tests {GATE} -m interop.report"],
    ),
    "conformance-report": Task(
        "write what the suite finds in every library",
        "gate",
        [f"PYTHONPATH=tests {GATE} -m interop.conformance"],
    ),
    "locks": Task(
        "move the locks to what is newest, and print library, pin, newest and age",
        "{venv}/heavy",
        ["{python} tests/locks.py"],
    ),
    "pins": Task(
        "print that; fails for a pin of over 60 days that is not the newest",
        "{venv}/heavy",
        ["{python} tests/locks.py --check"],
    ),
    "stacks": Task(
        "the tests of libraries with other releases and Pythons, STACKS=NAME...",
        "{venv}/heavy",
        [
            "{venv}/bin/maturin build --release --locked --quiet "
            "--out build/stacks-wheel",
            "[ -x build/python3.14/bin/python3.14 ] || "
            "tests/free_threaded/interpreter 3.14 sid gil",
            "PYTHONPATH=tests {python} tests/stacks.py build/stacks-wheel/*.whl "
            "{stacks}",
        ],
    ),
    "oneapi": Task(
        "exchange arrays with dpctl and dpnp, on Intel's OpenCL for the CPU",
        "{venv}/built build/oneapi/built",
        ["DLX_REQUIRE_HEAVY=1 build/oneapi/bin/python -m pytest tests/oneapi"],
    ),
    "engines": Task(
        "send tensors through dask, Ray, MPI, loky and multiprocessing",
        ENGINES,
        [
            "DLX_REQUIRE_HEAVY=1 build/engines/bin/python -m pytest "
            "packages/dlx-share/tests/engines"
        ],
    ),
    "drivers": Task(
        "try NVIDIA's and AMD's own libraries, from Debian's packages, without a GPU",
        BUILT,
        [
            "PYTHONPATH=tests {python} -m drivers.fetch",
            "{python} -m pytest tests/drivers",
        ],
    ),
    # Faults, races and leaks.
    "fuzz": Task(
        "look for wrong numbers, FUZZ_SECONDS=600 SEED=1 LIBRARIES=torch,numpy",
        BUILT,
        ["PYTHONPATH=tests {python} -m truth.run"],
    ),
    "fuzz-rust": Task(
        "fuzz the parsers, FUZZ_SECONDS=60 for each, TARGET=managed for one",
        "{venv}/bin/python",
        ["tests/fuzz/run"],
    ),
    "faults": Task(
        "let each allocation fail once",
        BUILT,
        ["DLX_FAULTS_EVERY=1 {python} -m pytest tests/process/test_faults.py"],
    ),
    "lifetime": Task(
        "LIFETIME_ROUNDS=1000000, without PyO3's pool, and under valgrind",
        HEAVY,
        ["tests/lifetime/run {python}"],
    ),
    "loom": Task(
        "the lock-free code in every interleaving, also with planted bugs",
        "",
        ["tests/loom/run"],
    ),
    "asan": Task(
        "tests of the metadata and the buffers under AddressSanitizer",
        BUILT,
        ["tests/sanitizers/asan {python}"],
    ),
    "tsan": Task(
        "tests of threads under ThreadSanitizer",
        BUILT,
        ["tests/sanitizers/tsan {python}"],
    ),
    "sharing": Task(
        "10,000 rounds of shared memory with kills, and 10,000 with interrupts",
        BUILT,
        [
            "PYTHONPATH=tests {python} -m support.killed_rounds 10000 1",
            "PYTHONPATH=tests {python} -m support.interrupted_rounds 10000 1",
        ],
    ),
    "disturbed": Task(
        "all that disturbs `dlx check`, and its interrupts",
        BUILT,
        [
            "DLX_DISTURBED_EVERY=1 {python} -m pytest "
            "packages/dlx-check/tests/conformance/test_disturbed.py "
            "packages/dlx-check/tests/conformance/test_interrupts.py"
        ],
    ),
    "free-threaded-races": Task(
        "the tests of threads on a Python without a GIL, FREE_THREADED=python3.14t",
        FREE_THREADED,
        ["{free} -m pytest " + RACES],
    ),
    "free-threaded": Task(
        "that, then all tests there, and how calls scale with threads",
        FREE_THREADED,
        [
            "{free} -m pytest " + RACES,
            "{free} -m pytest",
            "{free} benches/free_threads.py --json",
        ],
    ),
    # Measurements.
    "bench": Task(
        "compare with what else there is, in each Python of PYTHONS, BENCH=OPTIONS",
        HEAVY,
        [
            "{venv}/bin/maturin build --release --locked --quiet --out build/wheel",
            "{python} benches/every_python.py build/wheel {pythons} -- {bench}",
        ],
    ),
    "scaling": Task(
        "what more arguments, dimensions, types, threads, tensors and bytes cost",
        HEAVY,
        ["{python} benches/scaling.py --json"],
    ),
    "instructions": Task(
        "count the instructions of the hot paths; CI compares with them",
        HEAVY,
        ["{python} benches/instructions.py"],
    ),
    "pairs": Task(
        "count the instructions of conversions between every two libraries",
        "{venv}/built {venv}/interop",
        ["PYTHONPATH=tests {python} benches/pairs.py"],
    ),
    "processes": Task(
        "compare what passes tensors between processes, with and without dlx",
        ENGINES,
        ["build/engines/bin/python benches/processes.py --json"],
    ),
    # Wheels.
    "wheel": Task(
        "abi3 for this processor, the add-ons, sdists; tried in each of PYTHONS",
        TOOLS,
        [
            "PYTHONPATH=tests {python} tests/wheel/manylinux.py dist {machine}",
            "PYTHONPATH=tests {python} tests/wheel/check.py dist {pythons}",
        ],
    ),
    "wheel-abi3t": Task(
        "the same for CPython 3.15 and later, with and without a GIL; tried in none",
        TOOLS,
        [
            "PYTHONPATH=tests {python} tests/wheel/manylinux.py dist abi3t-{machine}",
            "PYTHONPATH=tests {python} tests/wheel/check.py dist",
        ],
    ),
    "wheel-native": Task(
        "the wheel with the machine's own libraries, as on macOS and Windows",
        TOOLS,
        [
            "rm -rf dist",
            "{venv}/bin/maturin build --release --strip --locked --out dist",
            "{python} -m build --quiet --outdir dist packages/dlx-check",
            "{python} -m build --quiet --outdir dist packages/dlx-share",
        ],
    ),
    "wheels": Task(
        "every wheel, tried on systems from Debian, too, emulated if need be",
        TOOLS,
        [
            "PYTHONPATH=tests {python} tests/wheel/manylinux.py dist "
            "x86_64 abi3t-x86_64 aarch64",
            "PYTHONPATH=tests {python} tests/wheel/check.py --everywhere dist "
            "{pythons}",
        ],
    ),
    "ports": Task(
        "that dlx compiles for Windows, macOS and musl, which run none of it here",
        TOOLS,
        ["PYTHONPATH=tests {python} tests/wheel/ports.py"],
    ),
    "macos": Task(
        "a wheel for macOS, which nothing here can load, in build/macos",
        TOOLS,
        ["PYTHONPATH=tests {python} tests/wheel/macos.py build/macos"],
    ),
    "gpu-kit": Task(
        "make build/gpu-kit, which runs on a GPU machine without a network",
        TOOLS,
        [
            "rm -rf build/gpu-kit-wheel",
            "{venv}/bin/maturin build --release --locked --quiet "
            "--out build/gpu-kit-wheel",
            "{python} tests/gpu_kit/build.py build/gpu-kit-wheel/*.whl {pythons}",
        ],
    ),
}


def values() -> dict[str, str]:
    """Return what stands for the names in braces."""
    given = os.environ.get
    venv = given("VENV") or ".venv"
    python = f"{venv}/bin/python"
    # Each process of pytest takes whole files, where nothing else is said.
    jobs = given("JOBS") or os.sysconf("SC_NPROCESSORS_ONLN")
    return {
        "venv": venv,
        "python": python,
        "pytest": f"{python} -m pytest --numprocesses={jobs} --dist=loadfile",
        "free": "build/free_threaded_venv/bin/python",
        "machine": os.uname().machine,
        "pythons": given("PYTHONS", "python3.11 python3.12 python3.13"),
        "bench": given("BENCH", "--json"),
        "stacks": given("STACKS", ""),
    }


def commands(name: str) -> list[str]:
    """Return what a task runs, first the installation of what it needs."""
    task = TASKS[name]
    make = [f"make --no-print-directory VENV={{venv}} {task.needs}"]
    lines = make * bool(task.needs) + task.commands
    return [line.format(**values()) for line in lines]


def main(*arguments: str) -> int:
    """Run tasks, and return the status of the first command that fails."""
    names = [each for each in arguments if each != "-n"]
    if not names:
        print("\n".join(f"{name:20} {task.what}" for name, task in TASKS.items()))
        return 0
    if unknown := [name for name in names if name not in TASKS]:
        print(f"there is no task {', '.join(unknown)}", file=sys.stderr)
        return 2
    # As in the Makefile.
    environment = {**os.environ, "PIP_QUIET": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for line in (line for name in names for line in commands(name)):
        print(line, flush=True)
        if "-n" not in arguments:
            status = subprocess.call(line, shell=True, cwd=REPOSITORY, env=environment)
            if status:
                print(f"FAILED with {status}: {line}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
