"""What the way by a table does not do: allocate, and call Python."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from ctypes import c_long
from itertools import repeat
from typing import Any

import dlx
import numpy as np
import pytest
from support.extensions import extension
from support.optional_libraries import requires


@pytest.fixture(params=["full", "numpy"])
def counted(request: pytest.FixtureRequest) -> Any:
    """Give `image.c`, which counts what the headers allocate."""
    flags = ["-DWITH_NUMPY"] if request.param == "numpy" else []
    return extension("image", "-DCOUNTED", *flags)


@pytest.fixture(params=["own", "dlx", "torch", "numpy"])
def tensor(request: pytest.FixtureRequest, counted: Any) -> Any:
    """Give a tensor whose library has a table, or whose struct is read."""
    x = np.ones((3, 4), "f4")
    if request.param == "torch":
        return requires("torch").ones(3, 4)
    if request.param == "numpy" and not hasattr(counted, "numpy"):
        pytest.skip("its macros are not there")
    if request.param == "own":
        return counted.import_like(x, None)
    return dlx.from_dlpack(x) if request.param == "dlx" else x


def memory(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes of Python that calls of a function hold at their most."""
    tracemalloc.start()
    for _ in repeat(None, 3):  # the first starts what tracemalloc keeps
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in repeat(None, 100):
            function(*arguments)
        most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most - before


def test_a_table_costs_no_allocation(counted: Any, tensor: Any) -> None:
    """Neither of C by the headers, nor of Python."""
    count = c_long.from_address(counted.allocations)
    for take in (counted.take, counted.take_typed, counted.take_unasked):
        take(tensor, tensor, tensor)
        before = count.value
        assert memory(take, tensor, tensor, tensor) == memory(isinstance, 1, int)
        assert count.value == before
    counted.import_like(tensor, None)
    assert count.value > before


def test_a_table_costs_no_call_of_python(counted: Any, tensor: Any) -> None:
    """The header asks torch by its C functions."""
    events: list[str] = []
    gc.disable()  # whose callbacks are Python
    try:
        for take in (counted.take, counted.take_typed):
            take(tensor, tensor, tensor)
            sys.setprofile(lambda _, event, fun: events.append(f"{event} {fun}"))
            take(tensor, tensor, tensor)
            sys.setprofile(None)
    finally:
        gc.enable()
    assert [event for event in events if "take" not in event] == [
        f"c_call {sys.setprofile}"
    ] * 2
