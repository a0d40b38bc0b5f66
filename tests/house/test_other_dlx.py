"""The dlx that an add-on finds: another project's, or another version's, is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import dlx
import dlx_check
import dlx_share
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "packages/dlx-check/src/dlx_check"
# What each program needs dlx for, and the add-on.
PROGRAMS = {
    "import dlx_check; dlx_check.inspect": "check",
    "import dlx_check; dlx_check.trace": "check",
    "from dlx_check.testing import check_mixin": "check",
    "import dlx_share": "share",
    "import dlx_share.pickling": "share",
}


def beside(folder: Path, source: str, *arguments: str) -> tuple[int, str]:
    """Run Python with another `dlx`; return its exit code and the last line it says."""
    package = folder / "dlx"
    package.mkdir()
    (package / "__init__.py").write_text(source)
    (package / "__main__.py").symlink_to(Path(dlx.__file__).with_name("__main__.py"))
    ran = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stderr.splitlines()[-1]


def sentence(folder: Path) -> str:
    """Give what is said of another project's."""
    return (
        f"{folder / 'dlx/__init__.py'} belongs to another project, which PyPI has "
        "under this name; uninstall it, then install this project's wheel, or a "
        "checkout by `pip install .`"
    )


OTHER = "class DLX: ..."
NEWER = "from_dlpack, __version__ = None, '9.9'"


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_project_is_refused(tmp_path: Path, program: str) -> None:
    said = beside(tmp_path, OTHER, "-c", program)
    assert said == (1, f"ImportError: {sentence(tmp_path)}")


def test_the_module_of_commands_says_the_same(tmp_path: Path) -> None:
    assert beside(tmp_path, OTHER, "-m", "dlx") == (1, f"dlx: {sentence(tmp_path)}")


def test_a_command_of_the_add_on_says_the_same(tmp_path: Path) -> None:
    said = beside(tmp_path, OTHER, "-m", "dlx_check", "info")
    assert said == (2, f"dlx info: {sentence(tmp_path)}")


@pytest.mark.parametrize(("program", "add_on"), PROGRAMS.items())
def test_another_version_is_refused(tmp_path: Path, program: str, add_on: str) -> None:
    own = dlx.__version__
    code, line = beside(tmp_path, NEWER, "-c", program)
    assert code == 1
    assert line == (
        f"ImportError: dlx_{add_on} {own} needs dlx {own}, found 9.9 in "
        f"{tmp_path / 'dlx/__init__.py'}; install both from one checkout by "
        f"`pip install . ./packages/dlx-{add_on}`"
    )


def test_all_have_one_version() -> None:
    assert dlx_check.__version__ == dlx_share.__version__ == dlx.__version__


def test_dlx_check_takes_dlx_from_the_module_that_refuses_others() -> None:
    imports = re.compile(r"^ *(?:import dlx\b|from dlx(?:\.\w+)* import)", re.M)
    found = {
        path.name for path in CHECK.rglob("*.py") if imports.search(path.read_text())
    }
    assert found == {"core.py"}
