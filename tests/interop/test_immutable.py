"""Arrays that their libraries call immutable, and others that are writable."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import pytest
from support.optional_libraries import needs

from .matrix import ENVIRONMENT

LIBRARIES = {
    "tensorflow": """
        import tensorflow as library
        def make(): return library.constant([1.0, 2.0])
        kind, name = library.Tensor, "a tensorflow.Tensor, which is immutable"
        """,
    "mlx": """
        import mlx.core as library
        def make(): return library.array([1.0, 2.0])
        kind, name = library.array, "a mlx.core.array, which is immutable"
        """,
    "jax": """
        import jax, jax.numpy as library
        def make(): return library.array([1.0, 2.0])
        kind, name = jax.Array, "a jax.Array, which is immutable"
        """,
}

NEVER_WRITTEN = """
    import dlx, numpy as np
    x = make()
    laid = np.from_dlpack(x)
    for array in (
        dlx.convert(x, np), dlx.convert(x, np, copy=False), dlx.from_dlpack(x).numpy(),
        np.from_dlpack(dlx.from_dlpack(x)), np.asarray(dlx.from_dlpack(x)),
    ):
        assert not array.flags.writeable and array.ctypes.data == laid.ctypes.data

    @dlx.bridge(np.ndarray)
    def fill(x=None, *, out=None):
        (x if out is None else out)[...] = 9

    def borrow(x=None, out=None):
        with dlx.borrow(out=out):
            pass

    try:
        fill(x)
    except ValueError as error:
        assert "read-only" in str(error)
    else:
        raise SystemExit("written")
    for way in (fill, borrow):
        try:
            way(out=x)
        except BufferError as error:
            assert name in str(error), error
        else:
            raise SystemExit("taken as out")
        way(out=dlx.from_dlpack(x, copy=True))
    assert np.asarray(x).tolist() == [1, 2]

    source = bytes(4096 + 64)
    start = -np.frombuffer(source, "u1").ctypes.data % 64
    protected = np.frombuffer(source, "f4", 1024, start)
    assert dlx.from_dlpack(dlx.convert(protected, kind)).readonly
    """

CONSTANT = """
    import dlx, numpy as np, tensorflow as tf
    array = dlx.convert(tf.constant(1.0), np)
    try:
        array[...] = 5
    except ValueError:
        pass
    assert float(tf.constant(1.0)) == 1
    """

LAZY = """
    import dlx, numpy as np, mlx.core as mx
    x = mx.array([1.0, 2.0])
    later = x + 1
    array = dlx.convert(x, np)
    try:
        array[...] = 5
    except ValueError:
        pass
    assert later.tolist() == [2, 3]
    """

WARP = """
    import dlx, numpy as np, warp as wp
    wp.init()
    x = wp.zeros(3, dtype=float, device="cpu")
    assert not np.from_dlpack(x).flags.writeable
    assert not dlx.convert(x, np).flags.writeable
    with dlx.borrow(out=x) as (view, _):
        np.from_dlpack(view)[0] = 7

    @dlx.bridge(np.ndarray)
    def fill(*, out):
        out[1] = 8
        return out

    assert fill(out=x) is x
    assert x.numpy().tolist() == [7, 8, 0]
    """

PADDLE = """
    import dlx, numpy as np, paddle
    x = paddle.zeros([3])
    dlx.convert(x, np)[0] = 7
    with dlx.borrow(out=x) as (view, _):
        np.from_dlpack(view)[1] = 8
    assert x.tolist() == [7, 8, 0]
    """


def run(library: str, code: str) -> None:
    """Run code in a separate process."""
    needs(library)
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_library_calls_immutable_is_not_written(library: str) -> None:
    """R42, R43: dlx refuses them as `out`, whatever their capsules say."""
    run(library, dedent(LIBRARIES[library]) + dedent(NEVER_WRITTEN))


@pytest.mark.parametrize(("library", "code"), [("tensorflow", CONSTANT), ("mlx", LAZY)])
def test_a_write_changes_no_other_result(library: str, code: str) -> None:
    """A write would change cached constants: `tf.constant(1.0)` was 5.0 afterwards."""
    run(library, dedent(code))


@pytest.mark.parametrize(("library", "code"), [("warp", WARP), ("paddle", PADDLE)])
def test_what_may_be_written_is(library: str, code: str) -> None:
    """R43: Warp's capsules cannot say writable, its array interface can."""
    run(library, dedent(code))
