"""What dlx passes on to its add-ons, with them and without them."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import dlx
import pytest
from support.python_process import run_python

ROOT = Path(__file__).parents[2]
ADD_ONS = {"check": "dlx_check", "share": "dlx_share"}

CALLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "dlx.inspect": ("check", lambda: dlx.inspect(0)),
    "dlx.live": ("check", dlx.live),
    "dlx.trace": ("check", dlx.trace),
    "dlx.attach": ("share", lambda: dlx.attach("shm:x")),
    "dlx.share": ("share", lambda: dlx.share(bytearray(8))),
    "dlx.empty(shared=True)": ("share", lambda: dlx.empty(2, "int8", shared=True)),
}
MODULES = {
    "dlx.check": ("check", "dlx_check.conformance"),
    "dlx.dask": ("share", "dlx_share.dask"),
    "dlx.mp": ("share", "dlx_share.mp"),
    "dlx.ray": ("share", "dlx_share.ray"),
}


@pytest.fixture
def core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the add-ons, as where they are not installed."""
    monkeypatch.setattr(dlx, "_doors", {})
    for module in ADD_ONS.values():
        monkeypatch.setitem(sys.modules, module, None)
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)


def advice(add_on: str, name: str) -> str:
    """Give what a door says that leads nowhere."""
    assert Path(ROOT, f"packages/dlx-{add_on}/pyproject.toml").exists()
    return re.escape(
        f"{name} is part of dlx-{add_on}, which is not installed; install it from the "
        f"checkout of dlx: pip install ./packages/dlx-{add_on}"
    )


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("core_alone")
def test_a_function_of_an_add_on_says_how_to_install_it(name: str) -> None:
    add_on, call = CALLS[name]
    with pytest.raises(ModuleNotFoundError, match=advice(add_on, name)) as raised:
        call()
    assert raised.value.name == ADD_ONS[add_on]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.usefixtures("core_alone")
def test_a_module_of_an_add_on_says_how_to_install_it(name: str) -> None:
    add_on, _ = MODULES[name]
    with pytest.raises(ModuleNotFoundError, match=advice(add_on, name)):
        import_module(name)


WITHOUT = "import sys; sys.modules['dlx_check'] = sys.modules['dlx_share'] = None; "


def test_the_variable_of_traces_says_how_to_install_what_traces() -> None:
    code, _, errors = run_python(f"{WITHOUT}import dlx", DLX_TRACE="1")
    assert code == 1
    assert re.search(advice("check", "the variable DLX_TRACE"), errors)


def test_the_commands_say_how_to_install_them() -> None:
    program = f"{WITHOUT}import runpy; runpy.run_module('dlx', run_name='__main__')"
    code, output, errors = run_python(program)
    assert (code, output) == (1, "")
    assert re.fullmatch(f"dlx: {advice('check', 'python -m dlx')}\n", errors)


def test_every_public_name_is_there_without_add_ons() -> None:
    program = (
        f"{WITHOUT}from dlx import *; import pickle; "
        "t = from_dlpack(bytearray(b'1234')); "
        "assert pickle.loads(pickle.dumps(t)).raw() == b'1234'"
    )
    assert run_python(program) == (0, "", "")


@pytest.mark.parametrize("name", ["dlx.check", "dlx.mp"])
def test_a_module_of_an_add_on_is_one_of_dlx_too(name: str) -> None:
    assert import_module(name) is import_module(MODULES[name][1])


def test_what_an_add_on_itself_lacks_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dlx, "_doors", {})
    monkeypatch.setitem(sys.modules, "dlx_check.inspection", None)
    monkeypatch.delitem(vars(sys.modules["dlx_check"]), "inspect", raising=False)
    with pytest.raises(ModuleNotFoundError) as raised:
        dlx.inspect(0)
    assert raised.value.name == "dlx_check.inspection"


@pytest.mark.parametrize("add_on", ADD_ONS)
def test_an_add_on_has_the_version_of_dlx_and_wants_no_other(add_on: str) -> None:
    project = tomllib.loads(
        Path(ROOT, f"packages/dlx-{add_on}/pyproject.toml").read_text()
    )
    version = tomllib.loads(Path(ROOT, "Cargo.toml").read_text())["package"]["version"]
    assert project["project"]["version"] == version
    assert project["project"]["dependencies"] == [f"dlx=={version}"]
