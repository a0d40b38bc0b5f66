"""The headers compile without a warning wherever they are said to."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy
import pytest
from support.dlpack_abi import dlpack_include
from support.extensions import ROOT, WARNINGS
from support.optional_libraries import missing

pytestmark = pytest.mark.slow
STANDARDS = {
    "gcc": ["c99", "c11"],
    "clang": ["c99", "c11"],
    "g++": ["c++17", "c++20"],
    "clang++": ["c++17", "c++20"],
}
OPTIONS = {
    "full": [],
    "limited": ["-DPy_LIMITED_API=0x030A0000"],
    "limited-3.12": ["-DPy_LIMITED_API=0x030C0000"],
    "free-threaded": ["-DPy_GIL_DISABLED=1"],
}
WHOLE = """
    #define DLX_EVENT void *
    #define DLX_EVENT_CREATE(event) (*(event) = 0, 0)
    #define DLX_EVENT_RECORD(event, stream) ((void)(event), (void)(stream), 0)
    #define DLX_EVENT_AWAIT(stream, event) ((void)(event), (void)(stream), 0)
    #define DLX_EVENT_PENDING(event) ((void)(event), 0)
    #define DLX_EVENT_WAIT(event) ((void)(event), 0)
    #define DLX_EVENT_DESTROY(event) (void)(event)
    #include "dlpack_exchange_streams.h"
    #include "dlpack_exchange_producer.h"
"""
SOURCES = {
    "alone": '#include "dlpack_exchange.h"\n',
    "whole": WHOLE,
    "numpy": """
    #include <Python.h>
    #define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
    #include <numpy/arrayobject.h>
    """
    + WHOLE,
}
IN_CPP = """
    #include "dlpack_exchange.hpp"
    template class dlx::view<const std::complex<float>, 2>;
    template class dlx::view<unsigned char, -1, 0, DLX_ROW_MAJOR>;
"""
BLANK = re.compile(r"/\*.*?\*/|//.*?$", re.S | re.M)


@cache
def pythons() -> dict[str, Path]:
    """Give the headers of each CPython from 3.10 on that pyenv has, by its version."""
    found = Path.home().glob(".pyenv/versions/3.1?.*/include/python3.1?")
    return {path.name: path for path in sorted(found)}


def refused(compiler: str, standard: str, source: str, flags: list[str]) -> str:
    """Compile, and give what the compiler has to say."""
    language = "c++" if "++" in compiler else "c"
    command = [compiler, "-x", language, f"-std={standard}", *WARNINGS, *flags]
    command += ["-fsyntax-only", f"-I{ROOT / 'include'}", "-"]
    ran = subprocess.run(
        command, input=source.rstrip(" "), capture_output=True, text=True, check=False
    )
    return ran.stderr


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("compiler", STANDARDS)
def test_no_compiler_warns(compiler: str, option: str) -> None:
    """By every standard, with the headers of every Python that is here."""
    if shutil.which(compiler) is None:
        missing(compiler, "apt-get install clang")
    versions = pythons() or pytest.skip("no headers of Python in ~/.pyenv")
    for version, folder in versions.items():
        if option == "free-threaded" and int(version.partition(".")[2]) < 13:
            continue
        for name, source in SOURCES.items():
            if name == "numpy" and option != "full":
                continue
            folders = [folder, dlpack_include(), numpy.get_include()]
            flags = [f"-isystem{path}" for path in folders] + OPTIONS[option]
            if name == "alone" and "++" in compiler:
                source += IN_CPP
            for standard in STANDARDS[compiler]:
                assert refused(compiler, standard, source, flags) == "", (version, name)


def test_the_headers_are_read_in_one_sitting() -> None:
    """Lines of 100 columns; no comment and no blank line is a line of code.

    600 is the bar. Guards against wrong numbers came after it was reached: torch is
    told of what is written, and masks and tangents are refused.
    """
    for path in (ROOT / "include").iterdir():
        text = path.read_text()
        assert max(map(len, text.splitlines())) <= 100, path.name
        code = filter(str.strip, BLANK.sub("", text).splitlines())
        assert len(list(code)) <= 629, path.name
