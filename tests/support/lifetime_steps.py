"""Steps for the lifetime tests: conversions, and bridged functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import dlx
import numpy as np
import tvm_ffi

from support.dlx_producers import Stored
from support.fake_table import Forward
from support.optional_libraries import requires
from support.wrapped_functions import doubled

ARRAY = np.arange(12.0).reshape(3, 4)[:, ::2]
READ_ONLY = np.broadcast_to(1.0, (2, 3))
TENSOR = dlx.from_dlpack(ARRAY)
FORWARD = Forward(TENSOR)
STORED = Stored(TENSOR)
TREE = {"a": [ARRAY, (TENSOR, 3)], "b": STORED}
OUT = np.zeros_like(ARRAY)
WATCHED = [ARRAY, READ_ONLY, TENSOR, FORWARD, STORED, OUT, Stored]
"""Objects whose reference counts no round may increase."""


@dlx.bridge(np.ndarray)
def divided(array: Any) -> Any:
    """Fail while holding an array."""
    raise ZeroDivisionError


def fail(call: Callable[..., Any], error: type[Exception], *arguments: Any) -> None:
    """Call a function that must raise, in less time than `pytest.raises` takes."""
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"{call} accepts {arguments}")


def refuse_a_copy() -> None:
    """Convert to a library that would write to read-only memory."""
    try:
        dlx.convert(READ_ONLY, tvm_ffi.Tensor, copy=False)
    except dlx.CopyRefused:
        return
    raise AssertionError("converted")


@cache
def torch_tensor() -> Any:
    """Return a tensor whose type has a table."""
    return requires("torch").zeros(3, 4)


@cache
def torch_type() -> Any:
    """Return its type; finding the module takes longer than converting."""
    return requires("torch").Tensor


CONVERSIONS: dict[str, Callable[[], Any]] = {
    "convert to NumPy": lambda: dlx.convert(TENSOR, np.ndarray),
    "convert a table to NumPy": lambda: dlx.convert(FORWARD, np.ndarray),
    "convert a mixin to NumPy": lambda: dlx.convert(STORED, np.ndarray),
    "convert to a mixin": lambda: dlx.convert(ARRAY, Stored),
    "convert to tvm_ffi": lambda: dlx.convert(ARRAY, tvm_ffi.Tensor),
    "convert with a copy": lambda: dlx.convert(READ_ONLY, tvm_ffi.Tensor),
    "refuse a copy": refuse_a_copy,
    "convert to torch": lambda: dlx.convert(ARRAY, torch_type()),
    "convert torch's to NumPy": lambda: dlx.convert(torch_tensor(), np.ndarray),
    "convert a tree": lambda: dlx.convert_tree(TREE, np.ndarray),
    "bridge": lambda: doubled(TENSOR),
    "bridge into an array": lambda: doubled(TENSOR, out=OUT),
    "bridge a failure": lambda: fail(divided, ZeroDivisionError, TENSOR),
}
