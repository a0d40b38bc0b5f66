"""`patches/cutile-python`: what `__dlpack__` hands over outlives the launch.

`cutile_standin.cpp` launches by the functions of the patch, on the driver of
`simulation.c`, on which `cutile_checkout.py` launches by cutile's own extension.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import cutile_checkout
import cutile_launch
import pytest
from support.dlpack_abi import dlpack_include
from support.extensions import load

DIFF = cutile_checkout.HERE / "change.diff"
ADDED = cutile_checkout.NEW / "cext/dlpack_launch.h"
STANDIN = Path(__file__).parent / "cutile_standin.cpp"
STOOD_FOR = ("check", "cuda", "cuda_helper", "cuda_loader", "memory", "py", "vec")
"""Headers of which the stand-in has what the patch needs."""

LAUNCHED = "the kernel is launched on 0x70 with 0x1000"
DELETED = "the array is deleted"
ASKED = "__dlpack__(stream=112)"
COPIES = "RuntimeError: Array argument in CUDAGraph isn't supported yet if __dlpack__"


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, ...]:
    """The stand-in, and the simulated driver that it calls."""
    compiler = os.environ.get("CXX", "c++").split()[0]
    if shutil.which(compiler) is None and os.environ.get("DLX_REQUIRE_HEAVY") != "1":
        pytest.skip("there is no compiler of C++")
    folder = tmp_path_factory.mktemp("cutile")
    for name in STOOD_FOR:
        text = f'#pragma once\n#include "{STANDIN.with_suffix(".h")}"\n'
        (folder / f"{name}.h").write_text(text)
    include = f"-I{dlpack_include() / 'dlpack'}"
    flags = [f"-I{each}" for each in (ADDED.parent, folder, cutile_checkout.INCLUDE)]
    build = cutile_checkout.extension
    driver = load("simulation", build(cutile_checkout.SIMULATION, folder, include))
    standin = load("cutile_standin", build(STANDIN, folder, *flags, include))
    standin.use(driver.cuGetProcAddress_v2_ptrptr)
    return standin, driver


@pytest.fixture(scope="module")
def cases(extensions: tuple[ModuleType, ...]) -> dict[str, str]:
    """What happened when the stand-in launched."""
    standin, driver = extensions
    found = dict(cutile_launch.cases(driver, standin.launch))
    return {
        name: re.sub(r"event \d+", "an event", text) for name, text in found.items()
    }


def test_the_deleter_runs_when_the_event_behind_the_kernel_is_done(
    cases: dict[str, str],
) -> None:
    """R150."""
    kept = [ASKED, LAUNCHED, "an event is recorded on 0x70"]
    assert cases["an array"].split("; ") == kept
    assert cases["the next launch"].split("; ") == [*kept, DELETED]


@pytest.mark.parametrize(
    "array", ["an array of before DLPack 1.0", "one that wraps such an array"]
)
def test_an_unversioned_capsule_is_kept_likewise(
    cases: dict[str, str], array: str
) -> None:
    """R11, R32."""
    assert cases[array] == cases["the next launch"]


def test_a_library_on_another_stream_is_waited_for_and_waits(
    cases: dict[str, str],
) -> None:
    """R80, R150."""
    assert cases["an array whose library lends it, on another stream"].split("; ") == [
        "an event is recorded on 0x90",
        "0x70 waits for an event",
        LAUNCHED,
        "an event is recorded on 0x70",
        "0x90 waits for an event",
    ]


def test_host_memory_is_refused_in_cutiles_words(cases: dict[str, str]) -> None:
    text = "ValueError: Input array is not on a CUDA device"
    assert cases["host memory"] == f"__dlpack__(stream=None); {DELETED}; {text}"


def test_another_device_is_refused(cases: dict[str, str]) -> None:
    """R86."""
    refused = "BufferError: it is on cuda:1, and the work on cuda:0"
    assert cases["another device"] == refused


def test_a_launch_that_fails_keeps_nothing(cases: dict[str, str]) -> None:
    assert cases["a launch that fails"].startswith(f"{ASKED}; {DELETED}; RuntimeError")


def test_a_graph_takes_a_view(cases: dict[str, str]) -> None:
    """The caller keeps it while the graph is replayed."""
    assert cases["a graph"] == f"{ASKED}; {DELETED}; {LAUNCHED}"


@pytest.mark.parametrize("copy", ["a copy", "what may be a copy"])
def test_a_graph_refuses_what_may_be_a_copy(cases: dict[str, str], copy: str) -> None:
    """Nobody could keep it while the graph is replayed."""
    text = cases[f"a graph, and {copy}"]
    assert text.startswith(f"{ASKED}; {DELETED}; {COPIES}")


def git(checkout: Path, *command: str) -> str:
    """Run git, and return what it prints."""
    return cutile_checkout.run("git", "-C", checkout, *command)


def olds() -> dict[str, str]:
    """Return the files that the change edits, as far as it shows them."""
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in DIFF.read_text().splitlines():
        if line.startswith("--- "):
            lines = files.setdefault(line.removeprefix("--- a/"), [])
        elif hunk := re.match(r"@@ -(\d+)", line):
            lines += ["//"] * (int(hunk[1]) - 1 - len(lines))
        elif line.startswith((" ", "-")):
            lines.append(line[1:])
    del files["--- /dev/null"]
    return {name: "\n".join([*lines, ""]) for name, lines in files.items()}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that has what the change edits."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    for name, text in olds().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=Before")
    return tmp_path


def test_the_file_is_what_git_applies(checkout: Path) -> None:
    file = cutile_checkout.commit(checkout)
    patched = git(checkout, "rev-parse", "HEAD^{tree}")
    git(checkout, "reset", "--quiet", "--hard", "HEAD^")
    git(checkout, "am", "--quiet", str(file))
    assert git(checkout, "rev-parse", "HEAD^{tree}") == patched


def test_the_headers_are_copied_as_they_are(checkout: Path) -> None:
    cutile_checkout.commit(checkout)
    for name in cutile_checkout.HEADERS:
        copy, header = checkout / "cext" / name, cutile_checkout.INCLUDE / name
        assert copy.read_text() == header.read_text()


def test_no_line_is_longer_than_cutile_allows() -> None:
    added = [line for line in DIFF.read_text().splitlines() if line.startswith("+")]
    lines = [line.removeprefix("+") for line in added] + ADDED.read_text().splitlines()
    assert [line for line in lines if len(line) > 100 and "SPDX" not in line] == []


def test_a_checkout_that_it_does_not_fit_is_left_as_it_was(checkout: Path) -> None:
    path = checkout / "cext/tile_kernel.cpp"
    path.write_text(path.read_text().replace("arrayrepr_dlpack_common", "other"))
    git(checkout, "commit", "--quiet", "--all", "--message=Other")
    with pytest.raises(subprocess.CalledProcessError):
        cutile_checkout.commit(checkout)
    assert git(checkout, "status", "--porcelain") == ""
