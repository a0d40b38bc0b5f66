"""A class that a bridged function has met exports no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest

X = np.arange(3, dtype="float32")


def lending() -> type:
    """Return a new class, whose instances export an array."""

    class Lending:
        def __dlpack__(self, **keywords: Any) -> Any:
            return X.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return X.__dlpack_device__()

    return Lending


@dlx.bridge(np.ndarray, result=np.ndarray)
def same(x: Any) -> Any:
    """Return the argument."""
    return x


MADE: list[Any] = []


@dlx.bridge(np.ndarray, result=np.ndarray)
def made(place: int) -> Any:
    """Return what is at this place of the list."""
    return MADE[place]


def returned(x: Any) -> Any:
    """Have a function that takes no tensor return the object."""
    MADE[:] = [x]
    return made(0)


@pytest.mark.parametrize("call", [same, returned])
def test_an_object_of_a_class_that_exports_no_more_passes_through(
    call: Callable[[Any], Any],
) -> None:
    """R63: the class is asked in each call, also where it was met as a tensor's."""
    class_: Any = lending()
    x = class_()
    assert isinstance(call(x), np.ndarray)
    del class_.__dlpack__, class_.__dlpack_device__
    assert call(x) is x
    assert isinstance(call(class_()), class_)
    class_.__dlpack__ = lambda self, **keywords: X.__dlpack__(**keywords)
    class_.__dlpack_device__ = lambda self: X.__dlpack_device__()
    assert isinstance(call(x), np.ndarray)
