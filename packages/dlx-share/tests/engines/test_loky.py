"""Handles through joblib and loky; `test_pickling_processes.py` has their pickles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

from .cases import address, place

loky = requires("loky")


@pytest.fixture(scope="module")
def executor() -> Iterator[Any]:
    """Start one other process."""
    with loky.get_reusable_executor(max_workers=1) as executor:
        yield executor


def double(handle: Any) -> Any:
    """Double what is shared, and say where that is."""
    x = dlx.attach(handle, like="numpy")
    x += x
    return place(address(x))


def test_a_handle_shares(executor: Any) -> None:
    """README.md, Engines: the same pages, written to there."""
    with dlx.share(np.arange(4.0)) as handle:
        t = dlx.attach(handle)
        there = executor.submit(double, handle).result(60)
        assert there == place(t.data_ptr)
        assert t.tolist() == [0, 2, 4, 6]


def twice(handle: Any) -> float:
    """Sum what is shared."""
    return float(np.from_dlpack(dlx.attach(handle)).sum())


def test_joblib_passes_handles() -> None:
    """README.md, Engines: `Parallel` over one memory."""
    joblib = requires("joblib")
    with dlx.share(np.ones(1000)) as handle:
        run = joblib.delayed(twice)
        assert joblib.Parallel(n_jobs=2)(run(handle) for _ in range(3)) == [1000] * 3
