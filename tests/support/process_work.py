"""Work for other processes, and tensors for it: what `test_pickling_processes` runs."""

from __future__ import annotations

import os
from typing import Any

import dlx
import numpy as np
from dlx_share.sharing import Handle

from support.pickled_classes import Bare


def tensors() -> list[Any]:
    """Make tensors of several kinds."""
    array = np.arange(6.0).reshape(2, 3)
    return [
        dlx.from_dlpack(array.T),
        dlx.from_buffer(bytes(range(8)), (2, 2), "bfloat16"),
        dlx.from_buffer(bytearray(range(4)), (4,), "float8_e5m2", strides=(-1,)),
        dlx.from_dlpack(np.broadcast_to(array, (5, 2, 3))),
        dlx.from_dlpack(np.zeros((0, 3))),
        dlx.from_dlpack(np.array(5)),
        Bare(array),
    ]


def description(x: Any) -> tuple[Any, ...]:
    """Describe what has to be the same at the other end."""
    t = dlx.from_dlpack(x)
    repeated = 0 in t.strides and t.size > 0 and t.ndim > 0
    compact = t.to(copy=True)
    return (
        type(x).__name__,
        str(t.dtype),
        t.shape,
        t.strides if t.size else None,
        t.readonly or repeated,
        bytes(compact.raw()),
    )


def answer(xs: list[Any]) -> tuple[int, list[Any], list[Any]]:
    """Return this process, what it was given, and the same objects."""
    return os.getpid(), [description(x) for x in xs], xs


def check(answered: tuple[int, list[Any], list[Any]]) -> None:
    """Check that another process was given the same, and what came back."""
    expected = [description(x) for x in tensors()]
    assert answered[0] != os.getpid()
    assert answered[1] == expected
    assert [description(x) for x in answered[2]] == expected


def write(h: Handle) -> int:
    """Write to the memory of a handle; return its address in this process."""
    x = dlx.attach(h, like="numpy")
    x[...] = 7
    return int(x.ctypes.data)
