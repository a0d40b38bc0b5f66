"""Ways through dlx that call a buffer, Arrow's structs, or a property of NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from support.dlx_producers import Stored
from support.failing_calls import (
    FUNCTIONS as ALL,
)
from support.failing_calls import (
    FailingArray,
    FailingDeviceArray,
    FailingStream,
    failing_exporter,
    point,
)


class ByDict:
    """A producer of NumPy's interface."""

    @property
    def __array_interface__(self) -> Any:
        """Describe the array."""
        point()
        return ARRAY.__array_interface__


class ByStruct:
    """A producer of NumPy's struct."""

    @property
    def __array_struct__(self) -> Any:
        """Describe the array."""
        point()
        return ARRAY.__array_struct__


class ByArray:
    """A producer of arrays of NumPy."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Return the array."""
        point()
        return ARRAY


class DataOfBuffer:
    """A producer of NumPy's interface whose memory is a buffer."""

    @property
    def __array_interface__(self) -> Any:
        """Describe the buffer."""
        return {"version": 3, "shape": (6,), "typestr": "<f4", "data": BUFFER}


ARRAY = np.arange(6, dtype="f4")
BUFFER = failing_exporter()()
SHARED = pa.array([1, 2, 3], pa.int32())
LARGE = pa.chunked_array([[], [1, 2, 3], []], pa.int32())
BY_ARRAY, BY_DEVICE_ARRAY = FailingArray(SHARED), FailingDeviceArray(SHARED)
BY_STREAM = FailingStream(LARGE)
BY_DICT, BY_STRUCT, BY_METHOD = ByDict(), ByStruct(), ByArray()
DATA = DataOfBuffer()
STORED = Stored(BUFFER)
WATCHED: list[Any] = [ARRAY, BUFFER, SHARED, LARGE, BY_ARRAY, BY_DEVICE_ARRAY]
WATCHED += [BY_STREAM, BY_DICT, BY_STRUCT, BY_METHOD, DATA, STORED]


@dlx.bridge(np.ndarray)
def bridged(array: Any) -> Any:
    """Compute with arrays."""
    return array + 0


def borrow(*sources: Any) -> None:
    """Lend tensors."""
    with dlx.borrow(*sources):
        pass


def write() -> None:
    """Lend one to be written to."""
    with dlx.borrow(ARRAY, out=DATA):
        pass


def ways(name: str, x: Any) -> dict[str, Callable[[], Any]]:
    """Return the ways of an object into dlx."""
    return {
        f"from_dlpack of {name}": lambda: dlx.from_dlpack(x),
        f"from_dlpack of {name}, with a copy": lambda: dlx.from_dlpack(x, copy=True),
        f"from_dlpack of {name}, shared": lambda: dlx.from_dlpack(x, copy=False),
        f"convert of {name}": lambda: dlx.convert(x, np.ndarray),
        f"borrow of {name}": lambda: borrow(x, ARRAY),
        f"convert of {name} to dlx": lambda: dlx.convert(x, dlx.Tensor, copy=True),
        f"bridge of {name}": lambda: bridged(Stored(x)),
    }


STEPS: dict[str, Callable[[], Any]] = {
    **ways("a buffer", BUFFER),
    **ways("an array interface", BY_DICT),
    **ways("an array interface of a buffer", DATA),
    **ways("an array struct", BY_STRUCT),
    **ways("an array method", BY_METHOD),
    **ways("an Arrow array", BY_ARRAY),
    **ways("an Arrow device array", BY_DEVICE_ARRAY),
    **ways("an Arrow stream", BY_STREAM),
    "from_buffer": lambda: dlx.from_buffer(BUFFER, (6,), "float32"),
    "from_dlpack of a mixin": lambda: dlx.from_dlpack(STORED),
    "export of a mixin": lambda: STORED.__dlpack__(max_version=(1, 3)),
    "convert_tree": lambda: dlx.convert_tree([Stored(BUFFER), BY_ARRAY], np.ndarray),
    "write": write,
}
FUNCTIONS = ALL[6:]
