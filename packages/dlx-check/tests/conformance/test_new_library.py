"""A library that nobody has checked before, as its maintainer would check it.

`tiny.py` has three faults: it drops copy=, ignores streams, and shows elements that are
wrong.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from sysconfig import get_path

import pytest
from dlx_check.cli import main
from dlx_check.conformance.deviations import FILE, Deviations

FAULTS = (
    "consumer.capsule.dropped",
    "producer.copy.true",
    "producer.stream.cpu.legacy",
)
PACKAGE = Path(__file__).parents[2]
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "mylib"
version = "7.0"
"""
TARGET = """
from dlx_check import Target

def target():
    return Target(name="mylib", imports="import mylib", make="mylib.make")
"""
BLOCKED = "import sys; sys.modules['dlx'] = None; exec(open(sys.argv[1]).read())"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with the library and nothing else."""
    shutil.copy(Path(__file__).with_name("tiny.py"), tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_three_planted_faults_are_named_and_reproduced(folder: Path) -> None:
    """README.md, A target: from an empty directory, by one command.

    Elements that are wrong (R18) are told once, and not for every layout and dtype.
    """
    command = ("-m", "dlx", "check", "tiny:target")
    ended = ran(folder, *command, "--all", "--repros", "out")
    assert ended.returncode == 1, ended.stderr
    for check in FAULTS:
        assert f"{check}  deviates" in ended.stdout
        program = folder / "out" / "tiny" / f"{check}.py"
        shown = ran(folder, "-c", BLOCKED, str(program))
        assert shown.returncode == 1
        assert "AssertionError" in shown.stderr
    assert "consumer.dtype.int8  " not in ended.stdout
    assert "consumer.strides.gaps  " not in ended.stdout


def test_the_faults_fail_in_pytest_with_their_programs(folder: Path) -> None:
    """README.md, pytest: one option, no file of tests, and no path to set."""
    options = (
        "-p",
        "dlx_check.pytest_plugin",
        "--dlx-check=tiny:target",
        "-k",
        " or ".join(FAULTS),
    )
    # As the command `pytest` does, -P leaves the working directory out of sys.path.
    ended = ran(folder, "-P", "-m", "pytest", *options)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    failed = ended.stdout.count("\nFAILED dlx::tiny::")
    for check in FAULTS:
        assert f"\nFAILED dlx::tiny::{check} - Failed: deviates: " in ended.stdout
    assert ended.stdout.count("    import tiny\n") == failed


def test_a_deviations_file_takes_five_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Deviations file: written, explained, strict, then a fault goes.

    Of a few checks, some of which it meets.
    """
    monkeypatch.chdir(folder)
    only = ("--only", "consumer.capsule.*,producer.copy.*,producer.stream.cpu.*")
    run = ("tiny:target", *only)

    def checked(*options: str) -> tuple[int, str]:
        code = main(["check", *options])
        return code, capsys.readouterr().out

    write = ("--write-deviations", FILE, "--json", "tiny.jsonl")
    assert checked(*run, *write)[0] == 1
    known = Deviations.read(folder / FILE).entries
    assert set(FAULTS) <= known.keys()

    code, said = checked("tiny.jsonl", "--strict")
    assert code == 1
    assert said.count("it has no reason and no link") == len(known)

    file = folder / FILE
    text = file.read_text()
    text = text.replace('reason = ""', 'reason = "to be done"')
    file.write_text(text.replace('link = ""', 'link = "https://example.org/1"'))
    code, said = checked(*run, "--strict")
    assert code == 0, said
    assert f"{len(known)} known" in said

    library = folder / "tiny.py"
    wrong = "dl_device=dl_device)"
    assert wrong in library.read_text()
    right = "dl_device=dl_device, copy=copy)"
    library.write_text(library.read_text().replace(wrong, right))
    code, said = checked(*run, "--strict")
    assert code == 1
    assert "producer.copy.true: it no longer deviates: delete" in said


@pytest.mark.slow
def test_the_workflow_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    """README.md, In CI: in a checkout of a library, dlx beside it."""
    if not Path(get_path("include"), "Python.h").exists() or not shutil.which("cc"):
        pytest.skip("a C compiler and Python.h are not installed")
    (block,) = re.findall(
        r"```yaml\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S
    )
    built = shutil.ignore_patterns("build", "*.egg-info", "*.so", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "dlx/packages/dlx-check", ignore=built)
    (tmp_path / "mylib").mkdir()
    (tmp_path / "mylib/__init__.py").write_text("from numpy import array as make\n")
    (tmp_path / "mylib/dlpack.py").write_text(TARGET)
    # Any other file in the folder of a project may be taken for a package.
    packages = '[tool.setuptools]\npackages = ["mylib"]\n'
    (tmp_path / "pyproject.toml").write_text(PROJECT + packages)
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/*/site-packages")
    # What is installed here takes the place of an index: pip, setuptools and NumPy.
    (site / "here.pth").write_text(get_path("purelib"))
    (environment / "bin/pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (environment / "bin/pip").chmod(0o755)
    summary = tmp_path / "summary"
    for step in re.findall("run: (.*)", block):
        ended = subprocess.run(
            ["bash", "-e", "-c", step],
            cwd=tmp_path,
            env={
                "PATH": f"{environment / 'bin'}:/usr/local/bin:/usr/bin:/bin",
                "GITHUB_STEP_SUMMARY": str(summary),
                "PIP_NO_INDEX": "1",
                "PIP_NO_BUILD_ISOLATION": "0",
                "CI": "true",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert summary.read_text().startswith("## `mylib 7.0` and DLPack 1.3")
