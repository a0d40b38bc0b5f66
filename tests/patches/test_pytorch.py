"""`patches/pytorch`: torch's table refuses what torch's `__dlpack__` refuses.

The tests are those that the patch brings, with the functions of the installed torch and
with those of the patch, which are compiled against its headers.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch_checkout
from support.optional_libraries import requires

torch = requires("torch")

pytestmark = pytest.mark.slow

HERE = torch_checkout.HERE
SUITE = torch_checkout.NEW / torch_checkout.SUITE
FATAL = "test_refuses_what_claims_to_be_a_tensor"
NAMES = [
    each.name
    for each in ast.walk(ast.parse(SUITE.read_text()))
    if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
]
REFUSED = [name for name in NAMES if "_refuses_" in name]
UNCHANGED = [name for name in NAMES if name not in REFUSED]
MODULE, TENSOR = (Path(name) for name in torch_checkout.EDITS)

TORCH = Path(str(torch.__file__)).parent

Outcomes = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """What failed in each test, by functions."""
    compiler = os.environ.get("CXX", "c++").split()[0]
    if shutil.which(compiler) is None and os.environ.get("DLX_REQUIRE_HEAVY") != "1":
        pytest.skip("there is no compiler of C++")
    command = [sys.executable, str(HERE / "torch_extension.py"), "suite"]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: Outcomes = json.loads(ran.stdout)
    return found


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that has what the patch edits."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    sources = {
        MODULE: HERE / "extension.cpp",
        TENSOR: TORCH / "_tensor.py",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=Before")
    return tmp_path


def git(checkout: Path, *command: str | Path) -> str:
    """Run git, and return what it prints."""
    whole = ["git", "-C", checkout, *command]
    return subprocess.run(whole, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_to_be_refused_is_refused_with_the_patch(
    outcomes: Outcomes, name: str
) -> None:
    """R124, R125, R127."""
    assert outcomes["patched"][name] == ""


@pytest.mark.parametrize("name", [name for name in REFUSED if name != FATAL])
def test_it_is_not_refused_so_without_the_patch(outcomes: Outcomes, name: str) -> None:
    assert outcomes["installed"][name] != ""


@pytest.mark.parametrize("name", UNCHANGED)
@pytest.mark.parametrize("functions", ["installed", "patched"])
def test_all_else_is_exported_as_before(
    outcomes: Outcomes, functions: str, name: str
) -> None:
    """R128."""
    assert outcomes[functions][name] == ""


@pytest.mark.parametrize("struct", torch_checkout.STRUCTS)
@pytest.mark.parametrize("function", torch_checkout.FUNCTIONS)
def test_the_installed_torch_has_the_functions_by_name(
    struct: str, function: str
) -> None:
    symbol = f"_ZN{len(struct)}{struct}{len(function)}{function}E"
    library = TORCH / "lib/libtorch_python.so"
    assert symbol.encode() in library.read_bytes()


def test_the_file_is_what_git_applies(checkout: Path) -> None:
    file = torch_checkout.commit(checkout)
    patched = git(checkout, "rev-parse", "HEAD^{tree}")
    git(checkout, "reset", "--quiet", "--hard", "HEAD^")
    git(checkout, "am", "--quiet", file)
    assert git(checkout, "rev-parse", "HEAD^{tree}") == patched
    changed = git(checkout, "diff", "--name-only", "HEAD^").split()
    new = [torch_checkout.HEADER, torch_checkout.SUITE]
    assert changed == sorted([*torch_checkout.EDITS, *new])


def test_each_function_calls_that_of_the_header(checkout: Path) -> None:
    torch_checkout.commit(checkout)
    added = [
        line.removeprefix("+").strip()
        for line in git(checkout, "show", "HEAD", "--", MODULE).splitlines()
        if line.startswith("+ ")
    ]
    calls = [
        line.partition("(")[0] for line in added if line.startswith("return torch::")
    ]
    assert sorted(calls) == [
        f"return torch::utils::{template}<{read_only}>"
        for template in sorted(torch_checkout.FUNCTIONS.values())
        for read_only in ("false", "true")
    ]


def test_no_line_is_longer_than_torch_formats(checkout: Path) -> None:
    torch_checkout.commit(checkout)
    files = (MODULE, torch_checkout.HEADER)
    added = [
        line.removeprefix("+")
        for line in git(checkout, "show", "HEAD", "--", *files).splitlines()
        # clang-format leaves a string whole.
        if line.startswith("+") and not line.startswith("+++") and '"' not in line
    ]
    assert added
    assert [line for line in added if len(line) > torch_checkout.COLUMNS] == []


def test_a_checkout_that_has_other_functions_is_left_as_it_was(checkout: Path) -> None:
    text = (checkout / MODULE).read_text()
    (checkout / MODULE).write_text(text.replace("DLTensorFromPyObject", "Other"))
    git(checkout, "commit", "--quiet", "--all", "--message=Other")
    with pytest.raises(ValueError, match=r"0 matches of .*DLTensorFromPyObjectNoSync"):
        torch_checkout.commit(checkout)
    assert git(checkout, "status", "--porcelain") == ""
