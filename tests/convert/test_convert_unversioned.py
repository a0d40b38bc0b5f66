"""`convert` to libraries that take no unversioned capsules."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from support.fake_producers import Producer
from support.optional_libraries import requires


class Strict:
    """A library that takes versioned capsules only, and never writes."""

    def __init__(self, tensor: dlx.Tensor) -> None:
        """Hold."""
        self.tensor = tensor

    @classmethod
    def from_dlpack(cls, x: dlx.Tensor) -> Strict:
        """Import."""
        if "versioned" not in repr(x.__dlpack__(max_version=(1, 3))):
            raise ValueError("an old capsule")
        return cls(x)

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export."""
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """On the CPU."""
        return (1, 0)


@pytest.mark.parametrize("copy", [None, False])
def test_what_cannot_say_that_it_is_read_only_is_told_to_be(copy: bool | None) -> None:
    """R39: nothing is copied, and nobody is told that it may be written."""
    producer = Producer(versioned=False)
    made = dlx.convert(producer, Strict, copy=copy).tensor
    assert made.data_ptr == dlx.from_dlpack(producer).data_ptr
    assert "dltensor_versioned" in repr(made.__dlpack__(max_version=(1, 3)))
    assert not np.from_dlpack(made).flags.writeable


def test_arrow_shares_the_memory_of_jax() -> None:
    """R39: `pypa.Array.from_dlpack` takes versioned capsules only."""
    jax = requires("jax")
    x = jax.numpy.arange(4.0)
    made = dlx.convert(x, pa.Array, copy=False)
    assert made.buffers()[1].address == x.unsafe_buffer_pointer()
    assert made.to_pylist() == [0, 1, 2, 3]
