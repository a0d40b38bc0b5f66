"""What the errors say to pass instead of other libraries' tables, variables, files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.optional_libraries import needs

from .matrix import ENVIRONMENT

# The library, what makes x and what the advice names, and what the advice gives.
CASES = [
    ("polars", "x = polars.LazyFrame({'a': [1, 2]})", "[[1], [2]]"),
    ("xarray", "x, name = xarray.Dataset({'a': ('i', [1, 2])}), 'a'", "[1, 2]"),
    ("scipy.sparse", "x = scipy.sparse.eye_array(2)", "[[1, 0], [0, 1]]"),
    ("scipy.sparse", "x = scipy.sparse.csr_matrix([[1, 2]])", "[[1, 2]]"),
    ("dask.array", "x = dask.array.ones(2)", "[1, 1]"),
    ("awkward", "x = awkward.Array([[1, 2], [3, 4]])", "[[1, 2], [3, 4]]"),
    ("awkward", "x = awkward.Array([np.datetime64(5, 's')])", "[5]"),
    ("awkward", "numpy = np; x = awkward.Array(['b', 'a'])", "[1, 0]"),
    ("tinygrad", "x = tinygrad.Tensor([1, 2])", "[1, 2]"),
    (
        "jax",
        "x = jax.numpy.array([1, 2], jax.numpy.int4)",
        "[1, 2]",
    ),
    (
        "h5py",
        "file = h5py.File('x', 'w', driver='core', backing_store=False); "
        "file['a'] = [1, 2]; x = file['a']",
        "[1, 2]",
    ),
    *(
        (
            "h5py",
            "numpy, name = np, 'f0'; "
            "file = h5py.File('x', 'w', driver='core', backing_store=False); "
            f"file['a'] = {what}; x = file['a']",
            "[1, 0]",
        )
        for what in ("['b', 'a']", "[b'b', b'a']", "np.array([(1,), (0,)], 'i4,')")
    ),
    ("tensorflow", "tf = tensorflow; x = tf.Variable([1, 2])", "[1, 2]"),
    (
        "tensorflow",
        "tf = tensorflow; x = tf.sparse.from_dense([1, 2])",
        "[1, 2]",
    ),
    (
        "tensorflow",
        "tf = tensorflow; x = tf.ragged.constant([[1, 2], [3]])",
        "[[1, 2], [3, 0]]",
    ),
    ("keras", "x = keras.Variable([1, 2])", "[1, 2]"),
]
CODE = """\
import dlx, numpy as np
from dlx._libraries.hints import tensor
import {library}
{make}
advice = tensor(x).split("pass ")[1].removeprefix("one of them, ")
for rest in " with ", " if ", ", a number", ", the least":
    advice = advice.partition(rest)[0]
y = dlx.convert(eval(advice), np)
assert y.tolist() == {expected}, y
"""
SYMBOLS = [
    ("tensorflow", "tensorflow.function(take)(tensorflow.ones(2))", "tf.py_function"),
    ("keras", "take(keras.Input((2,)))", "what the model returns"),
]
SYMBOLIC = """\
import dlx, pytest
import {library}

def take(x):
    with pytest.raises((AttributeError, NotImplementedError, ValueError)) as caught:
        dlx.from_dlpack(x)
    text = [str(caught.value), *getattr(caught.value, "__notes__", ())][-1]
    assert "stands for an array" in text and text.endswith("{advice}"), text
    return x

{make}
"""
DEVICES = [
    ("mlx.core", "mlx.core.cpu"),
    ("mlx.core", "mlx.core.Device(mlx.core.cpu, 0)"),
    ("warp", "warp.get_device('cpu')"),
    ("tensorflow", "tensorflow.ones(2).device"),
]
DEVICE = """\
import dlx, pytest
import {library}

with pytest.raises((TypeError, ValueError), match=r"; pass 'cpu'(;|$)"):
    dlx.Device({make})
"""


def run(library: str, code: str) -> None:
    """Run code with a library in a separate process."""
    needs(library)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr[-2000:]}"


def test_a_place_of_paddle_is_a_device() -> None:
    """R56: it has `__dlpack_device__`, and is no tensor."""
    code = "import dlx, paddle; assert dlx.Device(paddle.ones([2]).place) == 'cpu'"
    run("paddle", code)


@pytest.mark.parametrize(("library", "make", "expected"), CASES)
def test_the_advice_gives_the_elements(library: str, make: str, expected: str) -> None:
    """R61: what the error says to pass is a tensor of the same elements."""
    run(library, CODE.format(library=library, make=make, expected=expected))


@pytest.mark.parametrize(("library", "make", "advice"), SYMBOLS)
def test_a_symbol_has_no_elements_yet(library: str, make: str, advice: str) -> None:
    """R61: the error says where dlx gets arrays."""
    run(library, SYMBOLIC.format(library=library, make=make, advice=advice))


@pytest.mark.parametrize(("library", "make"), DEVICES)
def test_a_device_of_another_library_is_named(library: str, make: str) -> None:
    """`dlx.Device`: the error says which name to pass for the object."""
    run(library, DEVICE.format(library=library, make=make))
