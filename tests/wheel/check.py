"""Install the wheel of a folder into fresh environments, and use it there.

``python tests/wheel/check.py dist python3.11 python3.12 python3.13``: for each of the
interpreters a new virtual environment, the wheel and nothing else in it, and
``smoke.py`` and ``daemon.py``. Exits with 1 if one fails or is not on this machine, or
if the wheel is not the small abi3 wheel that it should be.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 1_000_000


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


def main(folder: str, *names: str) -> int:
    """Check the one wheel of ``folder`` with each interpreter."""
    [wheel] = Path(folder).glob("*.whl")
    failures = []
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1000:.0f} kB")
    if size > LIMIT:
        failures.append(f"the wheel has {size} bytes, {LIMIT} are accepted")
    if "-abi3-manylinux" not in wheel.name:
        failures.append("it is no abi3 manylinux wheel")
    for name in names:
        python = interpreter(name)
        if python is None:
            failures.append(f"{name} is not on this machine")
        elif not try_wheel(wheel, python):
            failures.append(f"it failed with {name}")
        else:
            print(f"{name}: ok")
    for failure in failures:
        print(f"wheel check: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
