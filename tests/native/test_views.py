"""`dlx::view` of `dlpack_exchange.h`: arguments of functions in C++."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.extensions import extension
from support.fake_producers import Producer


@pytest.fixture
def views() -> Any:
    """Give `views.cpp`."""
    return extension("views")


def test_elements_are_read_by_their_indices(views: Any) -> None:
    """Whatever the strides."""
    x = np.arange(12, dtype="f4").reshape(3, 4)
    for layout in (x, x.T, x[::-1, ::2], np.asfortranarray(x), x[:0]):
        assert views.total(layout) == layout.sum()


def test_elements_are_written_where_they_are(views: Any) -> None:
    """T without const."""
    x = np.arange(6) + 1j
    views.negate(x[::2])
    assert x.tolist() == [-1j, 1 + 1j, -2 - 1j, 3 + 1j, -4 - 1j, 5 + 1j]


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float64"])
def test_the_type_of_elements_is_that_of_dlpack(views: Any, name: str) -> None:
    """And no other."""
    first = getattr(views, f"first_{name}")
    assert first(np.ones((2, 1), name)) == (1.0, 2)
    with pytest.raises(TypeError, match=f"dtype is float16, expected is {name}"):
        first(np.ones(2, "f2"))


def test_a_python_exception_is_what_is_raised(views: Any) -> None:
    """The argument's name comes first; what was taken is released."""
    frozen = np.zeros(3, complex)
    frozen.setflags(write=False)
    with pytest.raises(BufferError, match=r"^x: it is read-only, and is written to$"):
        views.negate(frozen)
    with pytest.raises(TypeError, match=r"^x: it has 1 dimensions, expected are 2$"):
        views.total(np.zeros(3, "f4"))
    producer = Producer(shape=(2,))
    with pytest.raises(TypeError, match="dimensions"):
        views.total(producer)
    views.total(twice := Producer())
    assert (producer.deleted, twice.deleted) == (1, 1)
