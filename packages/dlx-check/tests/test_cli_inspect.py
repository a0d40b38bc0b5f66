"""`python -m dlx inspect`."""

from __future__ import annotations

import json

import dlx
import pytest
from support.command_line import ABSENT, run, run_with

pytestmark = pytest.mark.slow


def test_it_prints_what_inspect_returns() -> None:
    """docs/inspect.md."""
    result = run_with("inspect", "numpy:zeros((2, 3)).T", rich=ABSENT)
    assert result.returncode == 0
    assert "shape (3, 2), strides (1, 3)" in result.stdout


def test_json_is_one_document() -> None:
    result = run("inspect", "numpy:zeros((2, 3))", "--json")
    assert json.loads(result.stdout)["tensor"]["shape"] == [2, 3]


def test_a_type_shows_its_table() -> None:
    shown = json.loads(run("inspect", "dlx:Tensor", "--json").stdout)
    assert shown["table"]["version"] == [1, 3]
    assert shown["tensor"] is None


def test_without_exports_nothing_is_exported() -> None:
    source = """
class Array:
    def __dlpack__(self, **keywords): raise SystemExit("exported")
"""
    result = run_with("inspect", "mylib:Array()", "--no-exports", mylib=source)
    assert (result.returncode, result.stderr) == (0, "")
    assert "__dlpack__" in result.stdout


def test_what_a_library_prints_is_not_part_of_the_document() -> None:
    result = run_with(
        "inspect", "mylib:b'x'", "--json", mylib="print('hello from mylib')"
    )
    assert json.loads(result.stdout)["subject"] == "builtins.bytes"
    assert "hello from mylib" in result.stderr


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("numpy", "expected MODULE:EXPRESSION"),
        (":zeros(3)", "expected MODULE:EXPRESSION"),
        ("numpy: ", "expected MODULE:EXPRESSION"),
        ("nosuchlibrary:x", "ModuleNotFoundError"),
        ("numpy:zeros((3", "SyntaxError"),
        ("numpy:nosuchname", "NameError"),
        ("mylib:f()", "ValueError: out of order"),
        ("mylib:exit()", "SystemExit"),
    ],
)
def test_what_names_no_object_is_one_line_and_code_2(target: str, reason: str) -> None:
    source = """
def f(): raise ValueError("out of order")
exit = __import__("sys").exit
"""
    result = run_with("inspect", target, mylib=source)
    assert (result.returncode, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert reason in line


def test_the_function_and_the_command_show_the_same() -> None:
    shown = run("inspect", "builtins:bytes(3)").stdout
    assert shown == f"{dlx.inspect(bytes(3))}\n"
