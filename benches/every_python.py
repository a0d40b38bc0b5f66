"""Run the benchmark once in each Python, one process after the other.

    python benches/every_python.py WHEELS PYTHON... -- OPTION...

The interpreter that runs this script has everything installed. Each other PYTHON that
exists gets an environment in `build/`, with the wheel in WHEELS and the small
libraries; there the rows of torch say `not installed`.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
SMALL = (
    "apache-tvm-ffi>=0.1.15",
    "cuda-bindings>=13",
    "cuda-core>=1.2",
    "nanobind>=3.1",
    "numpy>=1.26",
    "rich>=13",
)
VERSION = "import sys; print('{}.{}'.format(*sys.version_info))"


def environment(python: str, version: str, wheel: Path) -> Path:
    """Make an environment with the wheel, and return its interpreter."""
    folder = BUILD / f"bench-venv-{version}"
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(inside), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, str(wheel), *SMALL], check=True)
    again = ["--force-reinstall", "--no-deps"]
    subprocess.run([*pip, *again, str(wheel)], check=True)
    return inside


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path, help="a folder with a wheel of dlx")
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    passed_on = sys.argv[end + 1 :]
    wheel = max(options.wheels.glob("*.whl"), key=lambda each: each.stat().st_mtime)
    own = "{}.{}".format(*sys.version_info)
    interpreters = {own: Path(sys.executable)}
    for python in options.pythons:
        found = shutil.which(python)
        asked = [found or python, "-c", VERSION]
        ran = subprocess.run(asked, capture_output=True, text=True) if found else None
        if ran is None or ran.returncode:
            print(f"{python}: not here")
        elif (version := ran.stdout.strip()) not in interpreters:
            interpreters[version] = environment(asked[0], version, wheel.resolve())
    for version, inside in interpreters.items():
        print(f"Python {version}", flush=True)
        command = [str(inside), str(HERE / "bench.py"), *passed_on]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
