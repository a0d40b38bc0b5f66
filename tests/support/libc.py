"""C library functions for tests: the heap, threads, inaccessible pages."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_ulong, c_void_p
from typing import Any

import pytest

_libc = ctypes.CDLL(None)
_mallinfo2 = getattr(_libc, "mallinfo2", None)
needs_heap_in_use = pytest.mark.skipif(
    _mallinfo2 is None, reason="needs Linux with glibc 2.33"
)


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = tuple(
        (name, c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_in_use() -> int:
    """Return the bytes allocated by malloc and not freed, free lists excluded."""
    assert _mallinfo2 is not None
    _mallinfo2.restype = _Mallinfo2
    info = _mallinfo2()
    in_use: int = info.uordblks + info.hblkhd
    return in_use


def heap_growth(call: Callable[[], object], times: int) -> int:
    """Return by how many bytes calls make the heap larger, once as many have run."""

    def in_use_after_calls() -> int:
        for _ in range(times):
            call()
        return heap_in_use()

    in_use_after_calls()
    before = in_use_after_calls()
    return in_use_after_calls() - before


def raw_thread(function: Any, argument: int) -> Callable[[], None]:
    """Start a thread unknown to Python; return a function that joins it."""
    thread, start = c_ulong(), ctypes.cast(function, c_void_p)
    assert _libc.pthread_create(byref(thread), None, start, c_void_p(argument)) == 0

    def join() -> None:
        assert _libc.pthread_join(thread, None) == 0

    return join


@contextmanager
def untouchable(page: int) -> Iterator[None]:
    """Make any access to the page kill the process."""
    mprotect = _libc.mprotect
    mprotect.argtypes = (c_void_p, c_size_t, c_int)
    assert mprotect(page, mmap.PAGESIZE, 0) == 0
    try:
        yield
    finally:
        assert mprotect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
