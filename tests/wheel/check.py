"""Check the wheels of a folder, and use them in fresh environments.

``PYTHONPATH=tests python tests/wheel/check.py [--everywhere] FOLDER PYTHON...``: what
the wheels hold, then, with each of the interpreters, a new virtual environment with dlx
alone in it, then with the add-ons, too, and the scripts for both. Exits with 1 if one
fails or is not on this machine. With ``--everywhere`` also on systems from Debian
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
from support.interpreters import interpreter

HERE = Path(__file__).parent
GLIBC = (2, 28)
LIMIT = 950_000
"""Bytes of a wheel of dlx."""
TAGS = {
    "dlx": r"(cp311-abi3|cp315-abi3\.abi3t)-manylinux_2_28_(x86_64|aarch64)",
    "dlx_check": r"cp311-abi3-manylinux_2_28_(x86_64|aarch64)",
    "dlx_share": "py3-none-any",
}
TOOLS = (
    ("twine", "check", "--strict", "{folder}/*"),
    *(
        ("check-wheel-contents", f"--toplevel={name}", f"{{folder}}/{name}-*.whl")
        for name in TAGS
    ),
    ("abi3audit", "--strict", "{folder}/*-cp311-abi3-*.whl"),
    ("validate-pyproject", "{repository}/pyproject.toml"),
    *(
        ("validate-pyproject", str(add_on / "pyproject.toml"))
        for add_on in REPOSITORY.glob("packages/*")
    ),
)


def try_wheels(core: Path, add_ons: list[Path], python: Path) -> bool:
    """Install wheels into a new environment of ``python`` and run the scripts."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        fresh = Path(folder, "bin/python")
        pip = [str(fresh), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        failed = 0
        for wheels, scripts in (
            ([core], elsewhere.ALONE),
            (add_ons, elsewhere.TOGETHER),
        ):
            subprocess.run([*pip, "install", "--no-index", *wheels], check=True)
            for name in scripts:
                failed += bool(subprocess.call([str(fresh), "-I", str(HERE / name)]))
        return not failed


def glibc(library: Path) -> tuple[int, ...]:
    """Return the newest version of glibc's symbols that a library needs."""
    command = "readelf", "--wide", "--version-info", str(library)
    text = subprocess.check_output(command, text=True)
    needed = text.partition("'.gnu.version_r'")[2]
    versions = re.findall(r"Name: GLIBC_([0-9.]+)", needed)
    if not versions:
        raise ValueError(f"readelf shows no version of glibc in {library}")
    return max(tuple(map(int, version.split("."))) for version in versions)


def shared_library(library: Path) -> list[str]:
    """Say what is wrong with a library."""
    failures = []
    newest = glibc(library)
    data = library.read_bytes()
    sections = subprocess.check_output(["readelf", "--wide", "-S", library])
    print(f"{library.name}: {len(data) / 1000:.0f} kB, glibc {newest[0]}.{newest[1]}")
    if newest > GLIBC:
        failures.append(f"it needs glibc {newest[0]}.{newest[1]}")
    if b".symtab" in sections:
        failures.append("its library is not stripped")
    for path in (REPOSITORY, Path.home()):
        if str(path).encode() in data:
            failures.append(f"its library holds the path {path}")
    return failures


def contents(wheel: Path) -> list[str]:
    """Say what is wrong with a wheel's name, size and files."""
    failures = []
    product, _, tag = wheel.stem.split("-", 2)
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1000:.0f} kB")
    if not re.fullmatch(TAGS[product], tag):
        failures.append(f"its tag is {tag}, {TAGS[product]} is accepted")
    wanted = ["licenses/LICENSE"]
    if product == "dlx":
        wanted += ["/notices.txt", "sboms/dlx.cyclonedx.json"]
        if size > LIMIT:
            failures.append(f"it has {size} bytes, {LIMIT} are accepted")
    with ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        for ending in wanted:
            if not any(name.endswith(ending) for name in names):
                failures.append(f"it has no {ending.rpartition('/')[2]}")
        libraries = [name for name in names if name.endswith(".so")]
        if len(libraries) != ("abi3" in tag):
            failures.append(f"its libraries are {libraries}")
        for name in libraries:
            failures += shared_library(Path(archive.extract(name, folder)))
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
    cores = [wheel for wheel in wheels if wheel.name.startswith("dlx-")]
    add_ons = [wheel for wheel in wheels if wheel not in cores]
    native = [wheel for wheel in cores if wheel.name.endswith(ending)]
    if names and not (native and len(add_ons) == 2):
        failures.append(f"there is no wheel for {ending}, or not of both add-ons")
    for name in names:
        python = interpreter(name)
        if python is None:
            failures.append(f"{name} is not on this machine")
        elif not all(try_wheels(wheel, add_ons, python) for wheel in native):
            failures.append(f"it failed with {name}")
        else:
            print(f"{name}: ok")
    if everywhere:
        failures += elsewhere.check(cores, add_ons)
    for failure in failures:
        print(f"wheel check: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
