"""The headers in Cython, by their `.pxd` files."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.extensions import extension
from support.fake_producers import Producer
from support.optional_libraries import requires

pytestmark = pytest.mark.slow


@pytest.fixture
def module() -> Any:
    """Give `image_cython.pyx`."""
    requires("Cython")
    return extension("image_cython")


def test_a_result_is_of_the_library_of_the_argument(module: Any) -> None:
    """By its table, or by `from_dlpack`."""
    torch = requires("torch")
    assert module.scale(np.arange(3, dtype="f4"), 2).tolist() == [0, 2, 4]
    result = module.scale(torch.ones(2, 2), 3)
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [[3, 3], [3, 3]]


def test_an_exception_of_the_header_is_raised(module: Any) -> None:
    """With the name of the argument; what was taken is deleted."""
    with pytest.raises(TypeError, match=r"^x: dtype is float64, expected is float32$"):
        module.scale(np.zeros(3), 2)
    taken = Producer(memory=bytearray(16), shape=(2,), dtype=(2, 64, 1))
    with pytest.raises(TypeError, match=r"^y: it is of <class 'int'>, expected is a"):
        module.dot(taken, 1)
    with pytest.raises(ValueError, match="lengths differ"):
        module.dot(taken, np.zeros(3))
    assert taken.deleted == len(taken.exports) == 2


def test_arguments_are_taken_together(module: Any) -> None:
    """By `dlx_borrow_all`."""
    assert module.dot(np.arange(3.0), dlx.from_dlpack(np.ones(3))) == 3


def test_a_class_has_a_table(module: Any) -> None:
    """Its memory is shared, and it is made of others' tensors."""
    image = module.Image(2, 3)
    assert "__dlpack_c_exchange_api__" in vars(module.Image)
    np.from_dlpack(image)[1] = 7
    assert dlx.from_dlpack(image).tolist() == [[0, 0, 0], [7, 7, 7]]
    copied = dlx.convert(np.from_dlpack(image).T, module.Image)
    assert isinstance(copied, module.Image)
    assert dlx.from_dlpack(copied).tolist() == [[0, 7], [0, 7], [0, 7]]
    with pytest.raises(BufferError, match="two dimensions of bytes"):
        dlx.convert(np.zeros(3), module.Image)
