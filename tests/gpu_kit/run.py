"""Run all that needs a GPU, the most telling first, and write one file of results.

    ./run                     # in the kit: installs its wheels into ./env, and runs
    ./run --only capture      # one group
    python tests/gpu_kit/run.py --here       # in a checkout, with what is installed

No network is needed. torch, CuPy and JAX are those of the Python that runs this. What
takes longer than its limit is stopped, and the rest goes on; results.txt is written
anew after each group. Send that file back: it has all that was found out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import site
import subprocess
import sys
import time
import venv
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from gpu_kit.groups import GROUPS, Group  # noqa: E402
from gpu_kit.processes import Environment, run_program, run_tests  # noqa: E402

Result = dict[str, Any]
BAD = ("failed", "error", "crashed", "hung")
WANTED = [
    *("dlx", "pytest", "rich", "numba-cuda", "numpy<2.5"),
    "apache-tvm-ffi",
]
TOOLKIT = [
    *("nvidia-cuda-cccl", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime"),
    *("nvidia-nvjitlink", "nvidia-nvvm"),
]
"""For Numba; torch goes on with the versions that it came with."""
PACKAGES = [
    *("dlx", "numpy", "torch", "cupy-cuda12x", "cupy-cuda13x", "jax", "jaxlib"),
    *("jax-cuda12-plugin", "jax-cuda13-plugin", "numba", "numba-cuda"),
    *("cuda-core", "cuda-bindings", "pytest"),
    *("apache-tvm-ffi", "nvidia-cutlass-dsl", "triton"),
]
ABOUT = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
about = {"python": sys.version, "packages": {}}
for name in sys.argv[1:]:
    try:
        about["packages"][name] = version(name)
    except PackageNotFoundError:
        about["packages"][name] = None
try:
    from gpu.driver import Driver
    driver = Driver()
    about["gpu"] = driver.device_name()
    about["cuda"] = driver.version()
except Exception as error:
    about["no gpu"] = f"{type(error).__name__}: {error}"
print(json.dumps(about))
"""


def said(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """Output of a command, or why there is none."""
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return (ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr).strip()


def install(folder: Path, wheels: Path) -> tuple[Path, dict[str, str]]:
    """Make an environment beside this Python's packages, with what they lack."""
    venv.create(folder, with_pip=False, clear=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    places = [*site.getsitepackages(), site.getusersitepackages()]
    beside = "".join(f"import site; site.addsitedir({place!r})\n" for place in places)
    own = said(python, "-c", "import site; print(site.getsitepackages()[0])")
    Path(own, "beside.pth").write_text(beside)
    # pip runs from its own wheel: this Python need not have it.
    pip = next(wheels.glob("pip-*.whl")) / "pip"
    command = [*map(str, (python, pip)), "install", "--quiet", "--no-index"]
    command += ["--no-compile", f"--find-links={wheels}"]
    installed = {name: said(*command, name) or "ok" for name in WANTED}
    for name in TOOLKIT:
        installed[name] = said(*command, "--no-deps", name) or "ok"
    return python, installed


def about_machine(environment: Environment) -> Result:
    """Describe the machine, and what is installed on it."""
    answer = said(
        environment.python,
        "-c",
        ABOUT,
        *PACKAGES,
        environment=environment.variables,
    )
    try:
        about: Result = json.loads(answer.splitlines()[-1])
    except (ValueError, IndexError):
        about = {"no gpu": answer}
    smi = "--query-gpu=name,driver_version,memory.total,compute_cap"
    return about | {
        "host": platform.platform(),
        "cores": os.cpu_count(),
        "nvidia-smi": said("nvidia-smi", smi, "--format=csv,noheader"),
        "settings": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("CUDA_", "DLX_", "PYTORCH_", "XLA_"))
        },
    }


def files_of(group: Group) -> tuple[list[Path], list[str]]:
    """Give the files of a group, and the patterns that have none yet."""
    folder = ROOT / "tests/gpu"
    found = {pattern: sorted(folder.glob(pattern)) for pattern in group.files}
    files = [file for matching in found.values() for file in matching]
    return files, [pattern for pattern in group.files if not found[pattern]]


def verdict_of(result: Result) -> tuple[str, str]:
    """Judge what a group's tests did: a word, and the reason."""
    count = Counter(test["outcome"] for test in result["tests"].values())
    if bad := sum(count[outcome] for outcome in BAD):
        return f"{bad} FAILED", ""
    if result["stopped"]:
        return "INCOMPLETE", result["stopped"]
    if count["passed"]:
        return "HELD", ""
    reasons = Counter(test["said"] for test in result["tests"].values())
    common = [reason for reason, _ in reasons.most_common(1)]
    return "NOT RUN", (common or [result["output"]])[0]


def run_group(group: Group, environment: Environment, seconds: float) -> Result:
    """Run one group within its limit."""
    started = time.monotonic()
    result: Result = {"name": group.name, "title": group.title, "limit_s": seconds}
    if group.program:
        result |= run_program(group, environment, seconds)
    else:
        files, missing = files_of(group)
        if files:
            result |= run_tests(group, files, environment, seconds)
            result["verdict"], result["reason"] = verdict_of(result)
        else:
            result |= {"verdict": "NOT RUN", "reason": "there are no tests yet"}
        result["no tests yet"] = missing
    return result | {"seconds": round(time.monotonic() - started, 1)}


def summary(document: Result) -> list[str]:
    """Give the readable part of the results."""
    machine = document["machine"]
    packages = machine.get("packages", {}).items()
    versions = ", ".join(f"{name} {number}" for name, number in packages if number)
    gpu = machine.get("gpu") or f"no GPU ({machine.get('no gpu')})"
    lines = [
        "# Results of the GPU kit",
        "",
        f"{document['date']}: {gpu}, CUDA {machine.get('cuda')}, "
        f"{machine['nvidia-smi']}, {machine['host']}",
        "",
        f"Python {machine.get('python')}; {versions}",
        "",
        "| group | verdict | passed | failed | skipped | seconds | |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in document["groups"]:
        count = Counter(test["outcome"] for test in result.get("tests", {}).values())
        bad = sum(count[outcome] for outcome in BAD)
        numbers = [count["passed"], bad, count["skipped"], result["seconds"]]
        cells = [result["title"], result["verdict"], *map(str, numbers)]
        reason = " ".join(result["reason"].split()).replace("|", "/")
        lines.append(f"| {' | '.join([*cells, reason[:300]])} |")
    for result in document["groups"]:
        tests = result.get("tests", {})
        skipped = [test for test in tests.values() if test["outcome"] == "skipped"]
        lines += ["", f"## {result['title']}", ""]
        lines += [f"- {line}" for line in result.get("found", [])]
        if result.get("no tests yet"):
            lines.append(f"- no tests yet: {', '.join(result['no tests yet'])}")
        for reason, times in Counter(test["said"] for test in skipped).items():
            lines.append(f"- {times} skipped: {reason}")
        for name, test in tests.items():
            if test["outcome"] not in ("passed", "skipped"):
                last = (test["said"].strip().splitlines() or [""])[-1]
                lines.append(f"- {test['outcome']}: `{name}`: {last[:200]}")
    return lines


def write(document: Result, target: Path) -> None:
    """Write the one file: the summary, then everything as JSON."""
    parts = [*summary(document), "", "## Everything", "", "```json"]
    parts += [json.dumps(document, indent=1).replace("```", "'''"), "```", ""]
    target.write_text("\n".join(parts))


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=44, help="for all groups")
    parser.add_argument("--only", metavar="GROUP", nargs="*", help="these groups")
    parser.add_argument(
        "--here", action="store_true", help="install nothing, use this Python"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "results.txt")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    installed: dict[str, str] = {}
    python = Path(sys.executable)
    if not options.here:
        print("kit: installing its wheels", flush=True)
        python, installed = install(ROOT / "env", ROOT / "wheels")
    environment = Environment(ROOT, python)
    document: Result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": [sys.executable, *sys.argv],
        "installed": installed,
        "machine": about_machine(environment),
        "groups": [],
    }
    for group in GROUPS:
        if options.only and group.name not in options.only:
            continue
        print(f"kit: {group.title} ...", flush=True)
        left = max(end - time.monotonic(), 0)
        result = run_group(group, environment, min(60 * group.minutes, left))
        document["groups"].append(result)
        write(document, options.results)
        reason = f": {result['reason']}" if result["reason"] else ""
        print(f"kit: {group.name}: {result['verdict']}{reason}", flush=True)
    print(f"kit: everything is in {options.results}")


if __name__ == "__main__":
    main()
