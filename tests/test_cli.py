"""`python -m dlx`: each command in a process of its own, as a user runs it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dlx
import pytest
from dlx.cli import main
from dlx.cli.frameworks import FRAMEWORKS
from support.optional_libraries import requires

DEMO_LIBRARIES = {
    "numpy": "numpy",
    "torch": "torch",
    "tvm-ffi": "tvm_ffi",
    "array-api-strict": "array_api_strict",
    "pyarrow": "pyarrow",
    "jax": "jax",
}
INSTALLED = [name for name, module in DEMO_LIBRARIES.items() if find_spec(module)]
WRITABLE = [name for name in INSTALLED if name not in ("pyarrow", "jax")]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _run(
    *arguments: str, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    # What makes rich take a pipe for a terminal would change the text under test.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONIOENCODING")
    }
    environment |= {"PYTHONIOENCODING": "utf-8", **variables}
    return subprocess.run(
        [sys.executable, "-m", "dlx", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        cwd=cwd,
        timeout=300,
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command line in an empty directory."""

    def run_here(*arguments: str, **variables: str) -> Any:
        return _run(*arguments, cwd=tmp_path, **variables)

    return run_here


@pytest.fixture
def run_with(tmp_path: Path) -> Run:
    """Run the command line with modules of the given source before all others."""

    def run_there(*arguments: str, **modules: str) -> Any:
        shadow = tmp_path / "shadow"
        shadow.mkdir()
        for name, source in modules.items():
            (shadow / f"{name}.py").write_text(source, encoding="utf-8")
        path = os.pathsep.join(
            [str(shadow), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        return _run(*arguments, cwd=tmp_path, PYTHONPATH=path)

    return run_there


ABSENT = "raise ImportError('not here')"


@cache
def printed(*arguments: str) -> str:
    """Return what a command prints that succeeds; it runs once for all tests."""
    with TemporaryDirectory() as folder:
        result = _run(*arguments, cwd=Path(folder))
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def demo_json() -> Any:
    """Return what `demo --json` prints."""
    return json.loads(printed("demo", "--json"))


@pytest.fixture
def info_json() -> Any:
    """Return what `info --json` prints."""
    return json.loads(printed("info", "--json"))


def hop(document: Any, source: str, target: str) -> Any:
    """Return the hop of a demo document between two libraries."""
    [found] = [
        each
        for each in document["hops"]
        if (each["source"], each["target"]) == (source, target)
    ]
    return found


def framework(document: Any, name: str) -> Any:
    """Return the entry of an info document for a framework."""
    [found] = [each for each in document["frameworks"] if each["name"] == name]
    return found


def test_no_command_prints_help_that_names_every_command(run: Run) -> None:
    result = run()
    assert result.returncode == 0
    assert "info" in result.stdout
    assert "demo" in result.stdout


def test_version_is_the_version_of_the_package(run: Run) -> None:
    assert run("--version").stdout == f"dlx {dlx.__version__}\n"


def test_an_unknown_command_is_a_usage_error(run: Run) -> None:
    assert run("nonsense").returncode == 2


def test_info_names_the_version_of_dlx(info_json: Any) -> None:
    assert info_json["dlx"] == dlx.__version__


def test_info_reads_dlpack_1_3_from_the_header_of_the_table(info_json: Any) -> None:
    assert info_json["dlpack"] == "1.3"


def test_info_gives_the_address_behind_the_capsule_of_the_tensor_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """R113, R114: a capsule of that name, around one static table."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    main(["info", "--json", "--no-import"])
    shown = json.loads(capsys.readouterr().out)["exchange_table"]
    capsule = dlx.Tensor.__dlpack_c_exchange_api__
    assert int(shown, 16) == pointer(capsule, b"dlpack_exchange_api")


@pytest.mark.parametrize("name", DEMO_LIBRARIES)
def test_info_says_whether_a_framework_is_installed(info_json: Any, name: str) -> None:
    assert framework(info_json, name)["installed"] is (name in INSTALLED)


@pytest.mark.parametrize("name", INSTALLED)
def test_info_gives_the_version_of_an_installed_framework(
    info_json: Any, name: str
) -> None:
    assert framework(info_json, name)["version"]


def test_info_finds_the_table_of_torch(info_json: Any) -> None:
    torch = requires("torch")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no exchange table")
    [tensor_type] = framework(info_json, "torch")["types"]
    assert tensor_type["name"] == "torch.Tensor"
    capsule = torch.Tensor.__dlpack_c_exchange_api__
    assert "dlpack_exchange_api" in repr(capsule)
    assert int(tensor_type["table"]["address"], 16) > 0


def test_info_says_that_a_type_without_a_table_has_none(run_with: Run) -> None:
    result = run_with("info", "--json", **{**NONE, "warp": "class array: pass"})
    [tensor_type] = framework(json.loads(result.stdout), "warp")["types"]
    assert tensor_type == {"name": "warp.array", "table": None}


def test_info_does_not_take_an_integer_for_a_table(run_with: Run) -> None:
    source = "class array: __dlpack_c_exchange_api__ = 4096"
    result = run_with("info", "--json", **{**NONE, "warp": source})
    [tensor_type] = framework(json.loads(result.stdout), "warp")["types"]
    assert tensor_type["table"] is None


def test_info_reports_a_framework_that_cannot_be_imported(run_with: Run) -> None:
    result = run_with(
        "info", "--json", **{**NONE, "warp": "raise OSError('no driver')"}
    )
    found = framework(json.loads(result.stdout), "warp")
    assert found["importable"] is False
    assert found["error"] == "OSError: no driver"


NONE = {
    each.module.partition(".")[0]: ABSENT
    for each in FRAMEWORKS
    if each.module != "cuda.core"
}
"""No framework, which saves the time that their imports take."""
ENDS = "import os; os.kill(os.getpid(), 11)"
ENDS_BESIDE = """
import os, sys
if {"warp", "numba", "dask"} & set(sys.modules) - {__name__}:
    os._exit(7)
class array: pass
"""


def test_info_says_which_framework_ends_the_process(run_with: Run) -> None:
    modules = {**NONE, "warp": ENDS, "tvm_ffi": "raise SystemExit"}
    result = run_with("info", "--json", **modules)
    document = json.loads(result.stdout)
    found = framework(document, "warp")
    assert (found["importable"], found["types"]) == (False, [])
    assert found["error"] == "ended the process by SIGSEGV"
    found = framework(document, "tvm-ffi")
    assert found["error"] == "ended the process with exit code 0"
    assert framework(document, "jax")["error"] == "ImportError: not here"


def test_info_imports_no_two_frameworks_in_one_process(run_with: Run) -> None:
    """TensorFlow and Paddle, for example, end it together."""
    libraries = dict.fromkeys(["warp", "numba", "dask"], ENDS_BESIDE)
    result = run_with("info", "--json", **{**NONE, **libraries})
    document = json.loads(result.stdout)
    for name in ("warp", "dask", "numba"):
        assert framework(document, name)["importable"] is True


def test_info_shows_a_framework_that_ends_the_process(run_with: Run) -> None:
    printed = run_with("info", **{**NONE, "warp": ENDS}).stdout
    [row] = [line for line in printed.splitlines() if line.split()[:1] == ["warp"]]
    assert "import failed" in row
    assert "SIGSEGV" in printed


def test_info_takes_nothing_that_a_framework_prints_for_an_answer(
    run_with: Run,
) -> None:
    source = """import os; os.write(1, b'["result", {"types": []}]\\n'); os._exit(3)"""
    result = run_with("info", "--json", **{**NONE, "warp": source})
    found = framework(json.loads(result.stdout), "warp")
    assert found["error"] == "ended the process with exit code 3"


def test_info_without_import_imports_no_framework(run_with: Run) -> None:
    result = run_with("info", "--json", "--no-import", warp="import os; os._exit(7)")
    assert result.returncode == 0
    assert framework(json.loads(result.stdout), "warp")["importable"] is None


def test_info_as_json_stays_one_document_when_a_framework_prints(run_with: Run) -> None:
    result = run_with("info", "--json", **{**NONE, "warp": "print('hello from warp')"})
    assert "hello from warp" not in result.stdout
    assert json.loads(result.stdout)


def test_info_does_not_take_a_directory_for_a_framework(
    run: Run, tmp_path: Path
) -> None:
    absent = next(each for each in FRAMEWORKS if not each.is_installed())
    (tmp_path / absent.module).mkdir()
    result = run("info", "--json", "--no-import")
    assert framework(json.loads(result.stdout), absent.name)["installed"] is False


@pytest.mark.parametrize("name", INSTALLED)
def test_the_table_of_info_mentions_each_installed_library(name: str) -> None:
    assert name in printed("info")


def test_the_demo_goes_from_every_library_to_every_other(demo_json: Any) -> None:
    hops = {(each["source"], each["target"]) for each in demo_json["hops"]}
    assert hops >= set(permutations(WRITABLE, 2))


@pytest.mark.parametrize("pair", list(permutations(WRITABLE, 2)), ids=" to ".join)
def test_a_write_at_one_end_of_a_hop_is_seen_at_the_other(
    demo_json: Any, pair: tuple[str, str]
) -> None:
    found = hop(demo_json, *pair)
    assert found["same_address"] is True
    assert found["access"] == "write seen both ways"
    assert found["outcome"] == "zero-copy"


@pytest.mark.parametrize("target", ["numpy", "array-api-strict"])
def test_pyarrow_memory_stays_read_only(demo_json: Any, target: str) -> None:
    """R42: the flag goes through dlx to a target that keeps it."""
    found = hop(demo_json, "pyarrow", target)
    assert found["same_address"] is True
    assert found["access"] == "read-only kept"


def test_each_proved_hop_is_timed_beside_the_direct_way(demo_json: Any) -> None:
    found = hop(demo_json, *(INSTALLED[:2] if len(INSTALLED) > 1 else INSTALLED * 2))
    assert found["import_ns"] > 0
    assert found["hand_on_ns"] > 0
    assert found["direct_ns"] > 0
    assert found["ratio"] == pytest.approx(
        (found["import_ns"] + found["hand_on_ns"]) / found["direct_ns"], abs=0.001
    )


@pytest.mark.parametrize("name", INSTALLED)
def test_the_table_of_the_demo_mentions_each_installed_library(name: str) -> None:
    assert name in printed("demo")


def test_the_table_of_the_demo_ends_with_its_summary(demo_json: Any) -> None:
    assert printed("demo").rstrip().endswith(demo_json["summary"])


def test_the_demo_prints_where_no_tick_can_be_encoded(run: Run) -> None:
    result = run("demo", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stdout.isascii()


COPIES = """
import numpy
def from_dlpack(x):
    return numpy.from_dlpack(x).copy()
"""


def test_a_library_that_copies_makes_the_demo_fail(run_with: Run) -> None:
    result = run_with(
        "demo", "--json", array_api_strict=COPIES, torch=ABSENT, jax=ABSENT
    )
    assert result.returncode == 1
    found = hop(json.loads(result.stdout), "numpy", "array-api-strict")
    assert found["outcome"] == "failed"
    assert found["same_address"] is False


def test_a_failed_hop_is_named_below_the_table(run_with: Run) -> None:
    result = run_with("demo", array_api_strict=COPIES, torch=ABSENT, jax=ABSENT)
    assert result.returncode == 1
    assert "numpy to array-api-strict failed" in result.stdout


def test_the_demo_skips_a_library_that_cannot_be_imported(run_with: Run) -> None:
    result = run_with("demo", "--json", torch=ABSENT, jax=ABSENT)
    document = json.loads(result.stdout)
    assert document["skipped"]["torch"] == "ImportError: not here"
    assert "torch" not in document["libraries"]


def test_the_demo_skips_a_library_that_ends_the_process(run_with: Run) -> None:
    document = json.loads(run_with("demo", "--json", torch=ENDS, jax=ABSENT).stdout)
    assert document["skipped"]["torch"] == "ended the process by SIGSEGV"
    assert "numpy" in document["libraries"]


ENDS_IN_USE = """
import numpy, os
def from_dlpack(x):
    if "dlx" in type(x).__module__:
        os.kill(os.getpid(), 6)
    return numpy.from_dlpack(x)
"""


def test_a_hop_that_ends_the_process_makes_the_demo_fail(run_with: Run) -> None:
    result = run_with(
        "demo", "--json", array_api_strict=ENDS_IN_USE, torch=ABSENT, jax=ABSENT
    )
    assert result.returncode == 1
    found = hop(json.loads(result.stdout), "numpy", "array-api-strict")
    assert (found["outcome"], found["error"]) == (
        "failed",
        "ended the process by SIGABRT",
    )


def test_the_demo_with_numpy_alone_goes_there_and_back(run_with: Run) -> None:
    others = {DEMO_LIBRARIES[name]: ABSENT for name in INSTALLED if name != "numpy"}
    document = json.loads(run_with("demo", "--json", **others).stdout)
    assert hop(document, "numpy", "numpy")["outcome"] == "zero-copy"


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_the_demo_without_numpy_says_what_to_install(
    run_with: Run, options: list[str]
) -> None:
    result = run_with("demo", *options, numpy=ABSENT, torch=ABSENT, jax=ABSENT)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "pip install numpy" in result.stderr


@pytest.mark.parametrize("command", ["info", "demo"])
def test_a_table_without_rich_is_one_line_that_says_what_to_install(
    run_with: Run, command: str
) -> None:
    result = run_with(command, rich=ABSENT)
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert 'pip install "dlx[cli]"' in line


@pytest.mark.parametrize("arguments", [["info", "--no-import"], ["demo"]])
def test_json_needs_no_rich(run_with: Run, arguments: list[str]) -> None:
    result = run_with(*arguments, "--json", rich=ABSENT, torch=ABSENT, jax=ABSENT)
    assert result.returncode == 0
    assert json.loads(result.stdout)["dlx"] == dlx.__version__


def test_help_needs_no_rich(run_with: Run) -> None:
    assert run_with("--help", rich=ABSENT).returncode == 0
