"""Shapes whose length is not what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import pytest


class Lying(list[int]):
    """A sequence of one number that claims more than fit into memory."""

    def __len__(self) -> int:
        """Lie."""
        return 1 << 40


class Interface:
    """An array interface with such a shape."""

    memory = bytearray(3)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Describe the memory."""
        shape = Lying([3])
        return {"version": 3, "typestr": "|u1", "shape": shape, "data": self.memory}


READERS: dict[str, Callable[[], dlx.Tensor]] = {
    "from_pointer": lambda: dlx.from_pointer(8, Lying([3]), "int8"),
    "from_buffer": lambda: dlx.from_buffer(bytearray(3), Lying([3]), "int8"),
    "empty": lambda: dlx.empty(Lying([3]), "int8"),
    "an array interface": lambda: dlx.from_dlpack(Interface()),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_length_that_lies_is_not_believed(read: Callable[[], dlx.Tensor]) -> None:
    """R88: what is iterated counts; no memory is taken by the length."""
    assert read().shape == (3,)
