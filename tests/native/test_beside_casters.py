"""The casters beside those of nanobind and pybind11, whose own tests then run."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.extensions import FOLDERS, ROOT
from support.optional_libraries import requires

pytestmark = pytest.mark.slow

INDEX = "https://pypi.org/simple/"
BESIDE = """
    m.def("total_of_view", [](const dlx::view<const float, 1> &x) {
        double sum = 0;
        for (int64_t i = 0; i < x.shape(0); i++) sum += x(i);
        return sum;
    });
"""
CALLED = """
import numpy as np
from {module} import total_of_view

assert total_of_view(np.ones(6, "f4")[::2]) == 3
"""


def read(url: str) -> bytes:
    """Return what the index has there."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        data: bytes = answer.read()
    return data


def source(library: ModuleType, folder: Path) -> Path:
    """Return the source distribution of an installed library, unpacked in a folder."""
    name, version = library.__name__, library.__version__
    pattern = rf'href="([^"]*/{name}-{re.escape(version)}\.tar\.gz)#sha256=(\w+)'
    try:
        [(url, digest)] = re.findall(pattern, read(f"{INDEX}{name}/").decode())
        data = read(urllib.parse.urljoin(INDEX, url))
    except urllib.error.URLError as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        if "CI" in os.environ:
            raise
        pytest.skip(f"the index cannot be read: {error}")
    assert hashlib.sha256(data).hexdigest() == digest
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"{name}-{version}"


def build(module: Path, sources: Iterable[Path], header: str, *folders: Path) -> None:
    """Compile sources, in each of which a header stands first, to a module."""
    command = ["c++", "-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden"]
    for folder in (ROOT / "include", *folders, *FOLDERS):
        command += ["-isystem", str(folder)]

    def compiled(file: Path) -> Path:
        target = module.with_name(f"{file.stem}.o")
        include = ["-include", header, "-c", "-o", str(target), str(file)]
        subprocess.run(command + include, check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    subprocess.run(["c++", "-shared", "-o", module, *objects], check=True)


def outcome(folder: Path, *tests: str) -> str:
    """Run tests in a folder, with its modules, and return what pytest says."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-rs"]
    command += ["-o", "addopts=", "-c", "/dev/null", f"--rootdir={folder}", *tests]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def insert(file: Path, before: str, text: str) -> None:
    """Put a text behind the line of a file that begins so."""
    old = file.read_text()
    [line] = [line for line in old.splitlines() if line.startswith(before)]
    file.write_text(old.replace(line, f"{line}\n{text}", 1))


def called(folder: Path, module: str) -> None:
    """Call the function that takes a view."""
    subprocess.run(
        [sys.executable, "-c", CALLED.format(module=module)], cwd=folder, check=True
    )


def test_nanobind_passes_its_own_tests_of_arrays(tmp_path: Path) -> None:
    """Its `ndarray` and `dlx::view` are arguments of one module."""
    own: Any = source(requires("nanobind"), tmp_path)
    folder = own / "tests"
    file = folder / "test_ndarray.cpp"
    insert(file, "NB_MODULE(", BESIDE)
    build(
        folder / "test_ndarray_ext.so",
        (file, own / "src/nb_combined.cpp"),
        "dlpack_exchange_nanobind.hpp",
        own / "include",
        own / "ext/robin_map/include",
    )
    assert " passed" in outcome(folder, "test_ndarray.py")
    called(folder, "test_ndarray_ext")


def test_pybind11_passes_its_own_tests_of_arrays(tmp_path: Path) -> None:
    """Its `array` and `dlx::view` are arguments of one module."""
    own = source(requires("pybind11"), tmp_path)
    folder = own / "tests"
    kinds = ("numpy_array", "numpy_dtypes", "numpy_scalars", "numpy_vectorize")
    tests = [f"test_{kind}" for kind in (*kinds, "buffers")]
    insert(
        folder / "pybind11_tests.cpp",
        "PYBIND11_MODULE(",
        BESIDE,
    )
    build(
        folder / "pybind11_tests.so",
        [folder / f"{name}.cpp" for name in ("pybind11_tests", *tests)],
        "dlpack_exchange_pybind11.hpp",
        own / "include",
        folder,
    )
    assert " passed" in outcome(folder, *(f"{name}.py" for name in tests))
    called(folder, "pybind11_tests")
