"""Awkward's arrays, whose memory is looked at by what holds it."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

awkward: Any = requires("awkward")


def test_an_awkward_array_shares_the_memory() -> None:
    """With `copy=False` the address is that of the array it holds."""
    a = np.arange(6.0, dtype="float32").reshape(2, 3)
    for to in (awkward, awkward.Array):
        made = dlx.convert(a, to, copy=False)
        assert made.tolist() == a.tolist()
        assert made.layout.data.ctypes.data == a.ctypes.data


def test_another_dtype_than_the_given_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the import makes."""
    a = np.arange(3.0, dtype="float32")
    own = awkward.from_dlpack
    wider = lambda x: awkward.values_astype(own(x), "float64")  # noqa: E731
    monkeypatch.setattr(awkward, "from_dlpack", wider)
    with pytest.raises(BufferError, match="would import float32 as float64"):
        dlx.convert(a, awkward.Array)
