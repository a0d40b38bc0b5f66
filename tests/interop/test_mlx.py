"""`dlx.pickling.dumps`: arrays of MLX inside any object."""

from __future__ import annotations

import pickle

import pytest
from dlx.pickling import dumps

mx = pytest.importorskip("mlx.core")


@pytest.mark.parametrize("name", ["bool_", "int64", "float32", "bfloat16", "complex64"])
def test_an_array_of_mlx_arrives_as_one(name: str) -> None:
    """docs/sharing.md, Other libraries: by its module, which is no part of it."""
    x = mx.ones((2, 3), dtype=getattr(mx, name))
    buffers: list[pickle.PickleBuffer] = []
    text = dumps([x], buffer_callback=buffers.append)
    [y] = pickle.loads(text, buffers=buffers)
    assert (type(y), y.dtype) == (mx.array, x.dtype)
    assert mx.array_equal(x, y)
    assert len(buffers) == 1


def test_strides_of_mlx_become_compact() -> None:
    """docs/sharing.md, Other libraries: it takes none."""
    for x in mx.arange(6).reshape(2, 3).T[::-1], mx.broadcast_to(mx.arange(2), (3, 2)):
        assert mx.array_equal(pickle.loads(dumps(x)), x)
