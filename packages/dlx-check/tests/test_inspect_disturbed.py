"""`dlx.inspect` without descriptors, interrupted, and of what cannot be shown."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import dlx
import numpy as np
import pytest
from dlx_check import memory
from dlx_check.inspection import Inspection
from interrupts import interrupted

X = np.arange(6, dtype="float32").reshape(2, 3)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def fields(found: Inspection) -> Any:
    """Return what two inspections of one object have in common."""
    tensor = found.tensor
    table = None if found.table is None else found.table.functions
    return table, tensor and (tensor.data, tensor.shape, tensor.strides, tensor.dtype)


@pytest.mark.parametrize("x", [X, dlx.from_dlpack(X), X.__dlpack__(), dlx.Tensor])
def test_inspect_finds_the_same_where_no_descriptor_is_left(x: Any) -> None:
    """docs/inspect.md: what is in memory is read without a file or a pipe."""
    expected = dlx.inspect(x)
    with no_descriptors():
        found = dlx.inspect(x)
    assert fields(found) == fields(expected)
    assert found.unreadable == ()


def test_inspect_that_is_interrupted_leaves_no_descriptor() -> None:
    """docs/inspect.md: a signal's handler may raise anywhere in it."""
    x = dlx.from_dlpack(X)
    assert interrupted(lambda: dlx.inspect(x), 2000) == 0


def test_memory_that_is_read_without_the_call_of_linux_leaves_no_descriptor() -> None:
    """docs/inspect.md: the same where a system or a sandbox has no such call."""
    assert memory._sent(X.ctypes.data, 24) == X.tobytes()
    assert memory._sent(8, 24) is None
    assert interrupted(lambda: memory._sent(X.ctypes.data, 24), 3000) == 0


class Evil(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        """Recurse."""
        return str(self)


class Pair(tuple[int, int]):
    """A pair that cannot be taken apart."""

    def __iter__(self) -> NoReturn:
        """Refuse."""
        raise Evil

    __len__ = __iter__


class Interface(dict[str, Any]):
    """A dictionary that answers nothing."""

    def get(self, *_: object) -> NoReturn:
        """Refuse."""
        raise Evil


class Raising:
    """An object that raises what cannot be shown."""

    def __dlpack__(self, **_keywords: Any) -> Any:
        """Raise."""
        raise Evil

    def __dlpack_device__(self) -> Any:
        """Give what cannot be taken apart."""
        return Pair((1, 0))

    def __cuda_stream__(self) -> Any:
        """Give the same."""
        return Pair((0, 7))

    @property
    def __cuda_array_interface__(self) -> Any:
        """Give what answers nothing."""
        return Interface(stream=7)

    def __repr__(self) -> str:
        """Refuse, too."""
        raise Evil


def test_inspect_says_what_cannot_be_shown() -> None:
    """docs/inspect.md: it raises nothing but what interrupts a program."""
    found = repr(dlx.inspect(Raising()))
    assert "raises Evil: (its message raises RecursionError)" in found
