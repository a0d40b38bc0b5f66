"""`python -m dlx info`."""

from __future__ import annotations

import ctypes
import json
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import dlx
import pytest
from dlx_check.cli import main
from dlx_check.cli.frameworks import Framework
from support.command_line import (
    ABSENT,
    DEMO_LIBRARIES,
    ENDS,
    INSTALLED,
    printed,
    run_with,
)
from support.optional_libraries import requires

pytestmark = pytest.mark.slow

NARROWED = """
from dlx_check.cli import info
info.FRAMEWORKS = [each for each in info.FRAMEWORKS if each.module in {modules}]
"""


def info_of(*arguments: str, **modules: str) -> str:
    """Return what `info` prints of these frameworks alone: each takes a process."""
    narrowed = NARROWED.format(modules=tuple(modules))
    result = run_with("info", *arguments, first=narrowed, **modules)
    assert result.returncode == 0
    return result.stdout


@pytest.fixture
def info_json() -> Any:
    """Return what `info --json` prints."""
    return json.loads(printed("info", "--json"))


def framework(document: Any, name: str) -> Any:
    """Return the entry of an info document for a framework."""
    [found] = [each for each in document["frameworks"] if each["name"] == name]
    return found


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
    [tensor_type] = framework(info_json, "torch")["types"]
    assert tensor_type["name"] == "torch.Tensor"
    capsule = torch.Tensor.__dlpack_c_exchange_api__
    assert "dlpack_exchange_api" in repr(capsule)
    assert int(tensor_type["table"]["address"], 16) > 0
    assert Path(tensor_type["table"]["library"]).name.startswith("libtorch")


def test_info_says_that_a_type_without_a_table_has_none() -> None:
    document = json.loads(info_of("--json", warp="class array: pass"))
    [tensor_type] = framework(document, "warp")["types"]
    assert tensor_type == {"name": "warp.array", "table": None}


def test_info_does_not_take_an_integer_for_a_table() -> None:
    source = "class array: __dlpack_c_exchange_api__ = 4096"
    document = json.loads(info_of("--json", warp=source))
    [tensor_type] = framework(document, "warp")["types"]
    assert tensor_type["table"] is None


def test_info_reports_a_framework_that_cannot_be_imported() -> None:
    document = json.loads(info_of("--json", warp="raise OSError('no driver')"))
    found = framework(document, "warp")
    assert found["importable"] is False
    assert found["error"] == "OSError: no driver"


def test_info_says_which_framework_ends_the_process() -> None:
    modules = {"warp": ENDS, "tvm_ffi": "raise SystemExit", "jax": ABSENT}
    document = json.loads(info_of("--json", **modules))
    found = framework(document, "warp")
    assert (found["importable"], found["types"]) == (False, [])
    assert found["error"] == "ended the process by SIGSEGV"
    found = framework(document, "tvm_ffi")
    assert found["error"] == "SystemExit"
    assert framework(document, "jax")["error"] == "ImportError: not here"


ENDS_BESIDE = """
import os, sys
if {"warp", "numba", "dask"} & set(sys.modules) - {__name__}:
    os._exit(7)
class array: pass
"""


def test_info_imports_no_two_frameworks_in_one_process() -> None:
    """TensorFlow and Paddle, for example, end it together."""
    libraries = dict.fromkeys(["warp", "numba", "dask"], ENDS_BESIDE)
    document = json.loads(info_of("--json", **libraries))
    for name in ("warp", "dask", "numba"):
        assert framework(document, name)["importable"] is True


def test_info_shows_a_framework_that_ends_the_process() -> None:
    printed = info_of(warp=ENDS)
    [row] = [line for line in printed.splitlines() if line.split()[:1] == ["warp"]]
    assert "import failed" in row
    assert "SIGSEGV" in printed


def test_info_takes_nothing_that_a_framework_prints_for_an_answer() -> None:
    source = """import os; os.write(1, b'["result", {"types": []}]\\n'); os._exit(3)"""
    found = framework(json.loads(info_of("--json", warp=source)), "warp")
    assert found["error"] == "ended the process with exit code 3"


def test_info_without_import_imports_no_framework() -> None:
    result = run_with("info", "--json", "--no-import", warp="import os; os._exit(7)")
    assert result.returncode == 0
    assert framework(json.loads(result.stdout), "warp")["importable"] is None


def test_info_as_json_stays_one_document_when_a_framework_prints() -> None:
    output = info_of("--json", warp="print('hello from warp', flush=True)")
    assert "hello from warp" not in output
    assert json.loads(output)


def test_info_does_not_take_a_directory_for_a_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a made-up one: all others may be installed."""
    (tmp_path / "no_framework").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not Framework("none", "no_framework", (), ()).is_installed()
    (tmp_path / "no_framework" / "__init__.py").touch()
    invalidate_caches()
    assert Framework("none", "no_framework", (), ()).is_installed()


@pytest.mark.parametrize("name", INSTALLED)
def test_the_table_of_info_mentions_each_installed_library(name: str) -> None:
    assert name in printed("info")
