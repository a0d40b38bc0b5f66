"""Arrays of MLX: it copies what it imports; `dlx_share.dumps` of any object."""

from __future__ import annotations

import pickle
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_share.pickling import dumps
from support.optional_libraries import requires

mx: Any = requires("mlx.core")


@pytest.mark.parametrize("name", ["bool_", "int64", "float32", "bfloat16", "complex64"])
def test_an_array_of_mlx_arrives_as_one(name: str) -> None:
    """dlx-share/README.md, Pickling: by its module, which is no part of it."""
    x = mx.ones((2, 3), dtype=getattr(mx, name))
    buffers: list[pickle.PickleBuffer] = []
    text = dumps([x], buffer_callback=buffers.append)
    [y] = pickle.loads(text, buffers=buffers)
    assert (type(y), y.dtype) == (mx.array, x.dtype)
    assert mx.array_equal(x, y)
    assert len(buffers) == 1


def test_strides_of_mlx_become_compact() -> None:
    """dlx-share/README.md, Pickling: it takes none."""
    for x in mx.arange(6).reshape(2, 3).T[::-1], mx.broadcast_to(mx.arange(2), (3, 2)):
        assert mx.array_equal(pickle.loads(dumps(x)), x)


def test_read_only_memory_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R42: what MLX makes is a copy, so nothing writes to the array through it."""
    a = np.arange(6.0, dtype="float32").reshape(2, 3)
    a.flags.writeable = False
    calls = []

    def counting(x: object) -> object:
        calls.append(x)
        return own(x)

    own = mx.from_dlpack
    monkeypatch.setattr(mx, "from_dlpack", counting)
    made = dlx.convert(a, mx.array)
    assert len(calls) == 1
    assert made.tolist() == a.tolist()
    assert dlx.from_dlpack(made).data_ptr != a.ctypes.data


def test_read_only_memory_without_a_copy_is_refused() -> None:
    """R42: what MLX makes of it is one."""
    a = np.arange(6.0, dtype="float32")
    a.flags.writeable = False
    with pytest.raises(dlx.CopyRefused, match="makes a copy of the tensor"):
        dlx.convert(a, mx.array, copy=False)


def test_the_bytes_of_an_array_are_as_read_only_as_the_array() -> None:
    """R42: MLX's buffer says that they may be written; a copy may."""
    x = mx.arange(3.0)
    mx.eval(x)
    tensor = dlx.from_buffer(x, (3,), "float32")
    assert tensor.readonly
    with pytest.raises(BufferError, match="read-only"), dlx.borrow(out=tensor):
        pass
    assert not dlx.from_buffer(x, (3,), "float32", copy=True).readonly
