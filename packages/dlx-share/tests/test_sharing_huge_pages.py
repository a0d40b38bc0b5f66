"""Copies into shared memory by huge pages, and where the kernel gives none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from support.python_process import run_python
from support.shared_memory import mappings, open_files

KERNEL = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
HUGE = int(KERNEL.read_text()) if KERNEL.exists() else 2 << 20
SIZES = [HUGE - 1, HUGE, HUGE + 1, 3 * HUGE - 8, 3 * HUGE + 4096, 3 * HUGE + 4097]


def elements(size: int) -> np.ndarray[Any, Any]:
    """Return bytes that are others in each page."""
    return np.resize(np.arange(251, dtype=np.uint8), size)


@pytest.mark.parametrize("size", [*SIZES, (64 << 20) + HUGE + 1])
def test_all_bytes_arrive_and_nothing_is_left_mapped_or_open(size: int) -> None:
    """README.md, Sharing: the rest is written to small ones."""
    x = elements(size)
    before = mappings(), open_files()
    with dlx.share(x) as h:
        assert np.array_equal(np.from_dlpack(dlx.attach(h)), x)
    assert (mappings(), open_files()) == before


def test_without_addresses_for_a_mapping_all_bytes_arrive() -> None:
    """README.md, Sharing: a limit of `ulimit -v`, for one."""
    code = """
import resource
import dlx
import numpy as np
x = np.arange(2 * HUGE, dtype="u1")
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + HUGE
resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
h = dlx.share(x)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
assert (np.from_dlpack(dlx.attach(h)) == x).all()
"""
    assert run_python(code.replace("HUGE", str(HUGE))) == (0, "", "")


def test_children_that_begin_meanwhile_keep_no_segment_from_being_frozen() -> None:
    """README.md, Sharing: they have no mapping that could write."""
    code = """
import os, threading, time
import dlx
import numpy as np
x, done, children = np.ones(8 * HUGE, "u1"), threading.Event(), []
def fork():
    while not done.is_set():
        children.append(os.fork())
        if not children[-1]:
            time.sleep(0.2)
            os._exit(0)
        time.sleep(0.002)
thread = threading.Thread(target=fork)
thread.start()
try:
    for _ in range(30):
        assert dlx.share(x, readonly=True).readonly
finally:
    done.set()
    thread.join()
    for pid in children: os.waitpid(pid, 0)
"""
    code = code.replace("HUGE", str(HUGE))
    # CPython warns of a fork beside threads.
    _, out, errors = run_python(
        f"import warnings\nwarnings.simplefilter('ignore')\n{code}"
    )
    assert (out, errors) == ("", "")


def test_a_frozen_copy_in_huge_pages_is_read_only() -> None:
    """README.md, Sharing: the seal finds no mapping that could write."""
    with dlx.share(elements(2 * HUGE), readonly=True) as h:
        assert dlx.attach(h).readonly
        with pytest.raises(BufferError, match="read-only"):
            dlx.attach(h, mode="rw")
