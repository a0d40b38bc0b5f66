"""Check the wheels of a folder, and use them in fresh environments.

``PYTHONPATH=tests python tests/wheel/check.py [--everywhere] FOLDER PYTHON...``: what a
wheel holds, then, with each of the interpreters, a new virtual environment, the wheel
and nothing else in it, and ``smoke.py`` and ``daemon.py``. Exits with 1 if one fails or
is not on this machine. With ``--everywhere`` also on systems from Debian
(`elsewhere.py`); what this machine cannot run is counted as skipped, with the reason.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

import elsewhere
from support.debian import REPOSITORY

HERE = Path(__file__).parent
LIMIT = 1_000_000
GLIBC = (2, 28)
TAG = re.compile(
    r"-(cp311-abi3|cp315-abi3\.abi3t)-manylinux_2_28_(x86_64|aarch64)\.whl"
)
TOOLS = (
    ("twine", "check", "--strict", "{folder}/*"),
    ("check-wheel-contents", "--toplevel=dlx,dlx_check.pytest_plugin.py", "{folder}"),
    ("abi3audit", "--strict", "{folder}/*-cp311-abi3-*.whl"),
    ("validate-pyproject", "{repository}/pyproject.toml"),
)


def interpreter(name: str) -> Path | None:
    """Find ``name`` on the path, or among the versions that pyenv has installed."""
    versions = Path.home() / ".pyenv/versions"
    pattern = f"{name.removeprefix('python')}.*/bin/{name}"
    for candidate in [name, *map(str, sorted(versions.glob(pattern)))]:
        try:
            answer = subprocess.run(
                [candidate, "-c", "import sys; print(sys.executable)"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return Path(answer.stdout.strip())
    return None


def try_wheel(wheel: Path, python: Path) -> bool:
    """Install ``wheel`` into a new environment of ``python`` and run the scripts."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        fresh = Path(folder, "bin/python")
        pip = [str(fresh), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-index", wheel], check=True)
        return not any(
            subprocess.call([str(fresh), "-I", str(HERE / name)])
            for name in ("smoke.py", "daemon.py")
        )


def glibc(library: Path) -> tuple[int, ...]:
    """Return the newest version of glibc's symbols that a library needs."""
    command = "readelf", "--wide", "--version-info", str(library)
    text = subprocess.check_output(command, text=True)
    needed = text.partition("'.gnu.version_r'")[2]
    versions = re.findall(r"Name: GLIBC_([0-9.]+)", needed)
    if not versions:
        raise ValueError(f"readelf shows no version of glibc in {library}")
    return max(tuple(map(int, version.split("."))) for version in versions)


def contents(wheel: Path) -> list[str]:
    """Say what is wrong with a wheel's name, size and files."""
    failures = []
    size = wheel.stat().st_size
    if size > LIMIT:
        failures.append(f"it has {size} bytes, {LIMIT} are accepted")
    if not TAG.search(wheel.name):
        failures.append("it is no abi3 wheel for manylinux_2_28")
    with ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        for ending in ("licenses/LICENSE", "/notices.txt", "sboms/dlx.cyclonedx.json"):
            if not any(name.endswith(ending) for name in names):
                failures.append(f"it has no {ending.rpartition('/')[2]}")
        [extension] = (name for name in names if name.endswith(".so"))
        library = Path(archive.extract(extension, folder))
        newest = glibc(library)
        data = library.read_bytes()
        sections = subprocess.check_output(["readelf", "--wide", "-S", library])
    print(f"{wheel.name}: {size / 1000:.0f} kB, glibc {newest[0]}.{newest[1]}")
    if newest > GLIBC:
        failures.append(f"it needs glibc {newest[0]}.{newest[1]}")
    if b".symtab" in sections:
        failures.append("its library is not stripped")
    for path in (REPOSITORY, Path.home()):
        if str(path).encode() in data:
            failures.append(f"its library holds the path {path}")
    return failures


def tools(folder: Path) -> list[str]:
    """Run the checks of others, and say which failed."""
    bin_folder = Path(sys.executable).parent
    failures = []
    for name, *arguments in TOOLS:
        given: list[str | Path] = []
        for argument in arguments:
            text = argument.format(folder=folder, repository=REPOSITORY)
            path = Path(text)
            found = sorted(path.parent.glob(path.name)) if "*" in text else [text]
            given += found
        if not found:
            print(f"{name}: skipped: there is no {path.name}")
            continue
        ran = subprocess.run(
            [bin_folder / name, *given], capture_output=True, text=True
        )
        if ran.returncode:
            failures.append(f"{name} failed: {ran.stdout}{ran.stderr}")
        else:
            print(f"{name}: ok")
    return failures


def main(*arguments: str) -> int:
    """Check the wheels of a folder with each interpreter."""
    everywhere = "--everywhere" in arguments
    folder, *names = [each for each in arguments if each != "--everywhere"]
    wheels = sorted(Path(folder).absolute().glob("*.whl"))
    failures = [f"{wheel.name}: {why}" for wheel in wheels for why in contents(wheel)]
    failures += tools(Path(folder).absolute())
    ending = f"cp311-abi3-manylinux_2_28_{os.uname().machine}.whl"
    native = [wheel for wheel in wheels if wheel.name.endswith(ending)]
    if names and not native:
        failures.append(f"there is no wheel for {ending}")
    for name in names:
        python = interpreter(name)
        if python is None:
            failures.append(f"{name} is not on this machine")
        elif not all(try_wheel(wheel, python) for wheel in native):
            failures.append(f"it failed with {name}")
        else:
            print(f"{name}: ok")
    if everywhere:
        failures += elsewhere.check(wheels)
    for failure in failures:
        print(f"wheel check: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
