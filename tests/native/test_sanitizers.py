"""The tests of the headers, in extensions with AddressSanitizer and UBSan."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.extensions import ROOT

# CPython keeps memory until the end; tests of memory that is given back need its
# address again (no quarantine), and tests of failed allocations need NULL.
OPTIONS = (
    "detect_leaks=0:quarantine_size_mb=0:thread_local_quarantine_size_kb=0:"
    "allocator_may_return_null=1"
)
FOUND = re.compile("ERROR: AddressSanitizer|runtime error")
LIBRARIES = ("libasan.so", "libstdc++.so", "libubsan.so")


def path_of(library: str) -> str:
    """Return where gcc has a library."""
    command = ["gcc", f"-print-file-name={library}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_the_sanitizers_report_nothing(tmp_path: Path) -> None:
    """Reports go to files: pytest captures stderr."""
    environment = {
        **os.environ,
        "LD_PRELOAD": ":".join(path_of(library).strip() for library in LIBRARIES),
        "NATIVE_FLAGS": "-g -fsanitize=address,undefined",
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"{OPTIONS}:log_path={tmp_path / 'report'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={tmp_path / 'report'}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"]
    ran = subprocess.run(
        [*command, "-m", "not slow", "tests/native"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    reports = [path.read_text() for path in tmp_path.iterdir()]
    assert [text for text in reports if FOUND.search(text)] == []
    assert ran.returncode == 0, ran.stdout + ran.stderr
