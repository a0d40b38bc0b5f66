"""Copies into shared memory by huge pages, and where the kernel gives none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_share.sharing import _mappings
from support.python_process import run_python
from support.shared_memory import mappings, open_files

HUGE = _mappings._huge() or 2 << 20
SIZES = [HUGE - 1, HUGE, HUGE + 1, 3 * HUGE - 8, 3 * HUGE + 4096, 3 * HUGE + 4097]


def elements(size: int) -> np.ndarray[Any, Any]:
    """Return bytes that are others in each page."""
    return np.resize(np.arange(251, dtype=np.uint8), size)


def limited(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let the kernel give so many huge pages; return the list of its answers."""
    real: Callable[..., int] = _mappings._LIBC.madvise
    answers: list[int] = []

    def madvise(address: int, size: int, advice: int) -> int:
        if advice != _mappings._MADV_COLLAPSE:
            return real(address, size, advice)
        refused = len(answers) >= most
        answers.append(-1 if refused else real(address, size, advice))
        return answers[-1]

    monkeypatch.setattr(_mappings._LIBC, "madvise", madvise)
    return answers


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("most", [0, 1, 9])
def test_all_bytes_arrive_however_many_huge_pages_there_are(
    monkeypatch: pytest.MonkeyPatch, size: int, most: int
) -> None:
    """docs/sharing.md, Sharing: the rest is written to small ones."""
    limited(monkeypatch, most)
    x = elements(size)
    with dlx.share(x) as h:
        assert np.array_equal(np.from_dlpack(dlx.attach(h)), x)


@pytest.mark.parametrize("size", SIZES)
def test_each_whole_huge_page_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """docs/sharing.md, Sharing: and nothing is left mapped or open."""
    answers, x = limited(monkeypatch, 9), elements(size)
    before = mappings(), open_files()
    dlx.share(x).close()
    assert (mappings(), open_files()) == before
    if any(answers):
        pytest.skip("this kernel has no huge page for a file in memory to give")
    assert len(answers) == (size // HUGE if _mappings._huge() else 0)


def test_after_a_refusal_the_kernel_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/sharing.md, Sharing: to look for what is not there takes time."""
    answers = limited(monkeypatch, 0)
    dlx.share(elements(5 * HUGE)).close()
    assert answers == ([-1] if _mappings._huge() else [])


def test_without_addresses_for_a_mapping_all_bytes_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/sharing.md, Sharing: a limit of `ulimit -v`, for one."""
    real: Callable[..., int] = _mappings._LIBC.mmap
    failed = ctypes.c_void_p(-1).value

    def mmap(address: int | None, size: int, prot: int, *rest: int) -> int | None:
        return real(address, size, prot, *rest) if prot else failed

    monkeypatch.setattr(_mappings._LIBC, "mmap", mmap)
    x = elements(2 * HUGE)
    with dlx.share(x) as h:
        assert np.array_equal(np.from_dlpack(dlx.attach(h)), x)


FORKED = """
import os, signal, time
import dlx
import numpy as np
from dlx_share.sharing import _mappings

children = []
real = _mappings._LIBC.madvise

def madvise(address, size, advice):
    if advice == _mappings._MADV_COLLAPSE and not children:
        children.append(os.fork())
        if not children[0]:
            time.sleep(60)
            os._exit(0)
    return real(address, size, advice)

_mappings._LIBC.madvise = madvise
try:
    with dlx.share(np.ones(2 * {huge}, np.uint8), readonly=True) as h:
        print(h.readonly, len(children))
finally:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""


def test_a_child_that_begins_meanwhile_has_no_mapping_of_it() -> None:
    """docs/sharing.md, Sharing: with one, the segment could not be frozen."""
    code, out, errors = run_python(FORKED.format(huge=HUGE))
    assert (code, errors) == (0, "")
    assert out.split() == ["True", str(int(_mappings._huge() > 0))]


def test_a_frozen_copy_in_huge_pages_is_read_only() -> None:
    """docs/sharing.md, Sharing: the seal finds no mapping that could write."""
    with dlx.share(elements(2 * HUGE), readonly=True) as h:
        assert dlx.attach(h).readonly
        with pytest.raises(BufferError, match="read-only"):
            dlx.attach(h, mode="rw")
