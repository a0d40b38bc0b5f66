"""The examples in C: a kernel, and a class."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.extensions import extension
from support.optional_libraries import requires

AS_USERS_COMPILE = "-Wno-pedantic"


@pytest.fixture
def kernel() -> Any:
    """Give `c_kernel.c`."""
    return extension("c_kernel", AS_USERS_COMPILE)


@pytest.fixture
def array() -> Any:
    """Give the class of `c_class.c`."""
    return extension("c_class", AS_USERS_COMPILE).Array


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0)])
def test_the_result_is_of_the_library_of_x(kernel: Any, shape: tuple[int, ...]) -> None:
    """Whatever y is of."""
    torch, jax = requires("torch"), requires("jax")
    y = np.full(shape, 3, "f4")
    for x in (torch.ones(shape), jax.numpy.ones(shape), np.ones(shape, "f4")):
        result = kernel.axpy(2, x, y)
        assert isinstance(result, type(x))
        assert np.asarray(result).tolist() == (2 + y).tolist()


def test_arguments_that_do_not_fit_are_refused(kernel: Any) -> None:
    """By the header, or by the kernel."""
    x = np.ones((2, 2), "f4")
    with pytest.raises(ValueError, match="differ in shape"):
        kernel.axpy(1, x, x[:1])
    with pytest.raises(TypeError, match=r"^y: dtype is float64, expected is float32$"):
        kernel.axpy(1, x, x.astype("f8"))
    with pytest.raises(BufferError, match=r"^x: it is not row-major"):
        kernel.axpy(1, x[:, ::-1], x)


def test_an_array_is_shared_with_every_library(array: Any) -> None:
    """It is read and written in place."""
    a = array(3)
    np.from_dlpack(a)[0] = 1
    requires("torch").from_dlpack(a)[1] = 2
    assert dlx.from_dlpack(a).tolist() == [1, 2, 0]


def test_an_array_is_made_of_any_tensor_without_a_copy(array: Any) -> None:
    """Of any dtype and layout; what is read-only stays so."""
    x = np.arange(6, dtype="i2").reshape(2, 3)
    a = dlx.convert(x.T, array)
    x[1, 0] = 9
    assert dlx.from_dlpack(a).tolist() == [[0, 9], [1, 4], [2, 5]]
    x.setflags(write=False)
    assert dlx.from_dlpack(dlx.convert(x, array)).readonly


def test_an_array_keeps_what_it_is_made_of(array: Any) -> None:
    """Until it goes, and so do the exports of it."""
    x = np.ones(3)
    a = dlx.convert(x, array)
    exported = dlx.from_dlpack(a)
    del x, a
    assert exported.tolist() == [1, 1, 1]


@pytest.mark.parametrize("arguments", [(), (-1,), (2**62,), ("3",), (1, 2)])
def test_an_array_that_cannot_be_made_is_an_error(array: Any, arguments: Any) -> None:
    """And nothing else."""
    with pytest.raises((BufferError, MemoryError, TypeError)):
        array(*arguments)
