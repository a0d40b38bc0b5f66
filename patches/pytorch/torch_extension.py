"""The patched functions beside the installed torch's own: tests, and what they cost.

    python patches/pytorch/torch_extension.py suite|cost|count

`suite` runs `new/test/test_dlpack_exchange.py` with the installed functions and with
the patched ones, and prints as JSON what failed in each test. `cost` prints
nanoseconds, `count` instructions, which valgrind counts; each of one call that exports
a tensor.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch_checkout
from torch.utils.dlpack import ReadOnlyTensorWrapper

HERE = Path(__file__).resolve().parent
REQUESTS = HERE.parents[1] / "benches/callgrind.c"
NAME = b"dlpack_exchange_api"
"""A capsule keeps the address of its name."""
CLASSES = (torch.Tensor, ReadOnlyTensorWrapper)
CALLS = ("call_dltensor", "call_managed")
FATAL = "test_refuses_what_claims_to_be_a_tensor"
"""The installed functions read its memory as a tensor's, which ends the process."""


def python(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of CPython's."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def installed(cls: type) -> int:
    """Return the address of the table of a class."""
    get = python(
        "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
    )
    address: int = get(vars(cls)["__dlpack_c_exchange_api__"], NAME)
    return address


def compile_into(folder: Path) -> None:
    """Edit `extension.cpp` as a checkout's `Module.cpp`, and compile it."""
    source = folder / "extension.cpp"
    source.write_text(torch_checkout.module((HERE / source.name).read_text()))
    root = Path(torch.__file__).parent
    # As torch itself is compiled.
    command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-O2"]
    command += ["-DNDEBUG", "-shared", "-fPIC", "-fvisibility-inlines-hidden"]
    command += ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    command += [f"-I{torch_checkout.NEW}"]
    for path in (root / "include", sysconfig.get_path("include")):
        command += ["-isystem", str(path)]
    command += [str(source), "-o", str(folder / "extension.so")]
    command += [f"-L{root / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True)


def loaded(folder: Path) -> ctypes.PyDLL:
    """Load what was compiled into a folder."""
    library = ctypes.PyDLL(str(folder / "extension.so"))
    library.patched.restype = ctypes.c_void_p
    library.patched.argtypes = (ctypes.c_void_p, ctypes.c_int)
    for name in CALLS:
        call = getattr(library, name)
        call.restype = ctypes.c_double
        call.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_int64)
    return library


def edit_dunder_dlpack() -> None:
    """Let `Tensor.__dlpack__` do what the edited `torch/_tensor.py` says."""
    # The function stays the same object, by which ReadOnlyTensorWrapper knows it.
    function: Any = torch.Tensor.__dlpack__
    path = function.__code__.co_filename
    tree = ast.parse(torch_checkout.tensor(Path(path).read_text()))
    (edited,) = (
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name == "__dlpack__"
    )
    names = dict(function.__globals__)
    exec(compile(ast.Module([edited], []), path, "exec"), names)
    function.__code__ = names["__dlpack__"].__code__


def install(library: ctypes.PyDLL) -> None:
    """Give torch's classes the patched tables, and the patched `__dlpack__`."""
    new = python(
        "PyCapsule_New",
        ctypes.py_object,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_void_p,
    )
    for read_only, cls in enumerate(CLASSES):
        table = library.patched(installed(cls), read_only)
        cls.__dlpack_c_exchange_api__ = new(table, NAME, None)
    edit_dunder_dlpack()


def outcomes(left_out: str = "") -> dict[str, str]:
    """Run torch's suite of the table: by test, what failed, or an empty string."""
    # torch's own module needs packages that torch does not install.
    common = ModuleType("torch.testing._internal.common_utils")
    vars(common).update(
        TestCase=unittest.TestCase,
        run_tests=unittest.main,
        skipIfTorchDynamo=lambda reason: lambda cls: cls,
    )
    sys.modules[common.__name__] = common
    suite = torch_checkout.NEW / torch_checkout.SUITE
    sys.path.insert(0, str(suite.parent))
    cls = importlib.import_module(suite.stem).TestDLPackExchange
    found = {}
    for name in unittest.defaultTestLoader.getTestCaseNames(cls):
        if name != left_out:
            result = cls(name).run()
            failed = [text for _, text in result.failures + result.errors]
            found[name] = "".join(failed)
    return found


def samples() -> dict[str, Any]:
    """Make tensors of which none is refused."""
    base = torch.ones(3)
    return {
        "a tensor": torch.ones(3),
        "a tensor of which there is a view": base,
        "a view": base[1:],
        "a parameter": torch.nn.Parameter(torch.ones(3), requires_grad=False),
        "a subclass": torch.ones(3).as_subclass(type("Sub", (torch.Tensor,), {})),
    }


def tables(library: ctypes.PyDLL) -> tuple[int, int]:
    """Return the addresses of the installed table and the patched one."""
    own = installed(torch.Tensor)
    return own, library.patched(own, False)


def cost(folder: Path) -> Iterator[str]:
    """Write the least of 300 rounds, in which the tables take turns."""
    library = loaded(folder)
    for kind, tensor in samples().items():
        for name in CALLS:
            call = getattr(library, name)
            rounds = [
                [call(table, tensor, 1000) for table in tables(library)]
                for _ in range(300)
            ]
            before, now = map(min, zip(*rounds, strict=True))
            yield f"{name}, {kind}: {before:.1f} ns, {now:.1f} with the patch"


def counted(folder: Path) -> None:
    """Have callgrind dump the instructions of few calls and of many."""
    library, requests = loaded(folder), ctypes.CDLL(str(folder / "callgrind.so"))
    requests.callgrind_start()
    for kind, tensor in samples().items():
        for name in CALLS:
            for table in tables(library):
                for calls in (10, 110):
                    requests.callgrind_zero()
                    getattr(library, name)(table, tensor, calls)
                    requests.callgrind_dump(f"{name}, {kind}".encode())


def count(folder: Path) -> Iterator[str]:
    """Write the instructions of a call."""
    requests = ["cc", "-shared", "-fPIC", str(REQUESTS)]
    subprocess.run([*requests, "-o", str(folder / "callgrind.so")], check=True)
    command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={folder / 'out'}", sys.executable, __file__]
    subprocess.run([*command, "counted", str(folder)], check=True)
    found: dict[str, list[int]] = {}
    for path in sorted(folder.glob("out.*"), key=lambda each: int(each.suffix[1:])):
        text = path.read_text()
        name = re.search(r"Client Request: (.+)", text)
        total = re.search(r"^(?:summary|totals): (\d+)", text, re.M)
        if name and total:
            found.setdefault(name[1], []).append(int(total[1]))
    for what, (few, many, new_few, new_many) in found.items():
        before, now = (many - few) / 100, (new_many - new_few) / 100
        yield f"{what}: {before:.0f} instructions, {now:.0f} with the patch"


def main(command: str) -> None:
    """Run a command."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        compile_into(folder)
        if command == "suite":
            before = outcomes(FATAL)
            install(loaded(folder))
            print(json.dumps({"installed": before, "patched": outcomes()}))
        else:
            print(f"torch {torch.__version__}, Python {platform.python_version()}")
            print(*{"cost": cost, "count": count}[command](folder), sep="\n")


if __name__ == "__main__":
    if sys.argv[1] == "counted":
        counted(Path(sys.argv[2]))
    else:
        main(sys.argv[1])
