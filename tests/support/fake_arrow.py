"""Arrow's C data interface in ctypes, and modified pyarrow exports."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p, cast
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from support.arrow_structs import ArrowArray, ArrowDeviceArray, ArrowSchema, Release
from support.dlpack_abi import capsule_pointer, for_ever


def count_releases(struct: Any) -> list[int]:
    """Count how often a struct is released, also after it is moved."""
    original, calls = Release(cast(struct.release, c_void_p).value or 0), []

    def release(address: int) -> None:
        calls.append(address)
        original(address)

    struct.release = for_ever(Release(release))
    return calls


Change = Callable[[Any, Any], object]


class ByArray:
    """A pyarrow array that has only `__arrow_c_array__`.

    `change` gets the structs that the capsules point to.
    """

    NAME = b"arrow_array"
    STRUCT: Any = ArrowArray

    def __init__(self, array: Any, change: Change = lambda schema, array: None) -> None:
        """Wrap `array`."""
        self.array = array
        self.change = change

    def changed(self, capsules: tuple[Any, Any]) -> tuple[Any, Any]:
        """Change the structs that the capsules point to."""
        schema, array = capsules
        self.change(
            ArrowSchema.from_address(capsule_pointer(schema, b"arrow_schema")),
            self.STRUCT.from_address(capsule_pointer(array, self.NAME)),
        )
        return capsules

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Return pyarrow's capsules."""
        return self.changed(self.array.__arrow_c_array__(requested_schema))


class ByDeviceArray(ByArray):
    """A pyarrow array with `__arrow_c_device_array__`; its other method is a trap."""

    NAME = b"arrow_device_array"
    STRUCT = ArrowDeviceArray

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Fail if called."""
        raise AssertionError("__arrow_c_device_array__ comes first")

    def __arrow_c_device_array__(
        self, requested_schema: Any = None, **keywords: Any
    ) -> tuple[Any, Any]:
        """Return pyarrow's capsules."""
        assert not keywords
        return self.changed(self.array.__arrow_c_device_array__(requested_schema))


class Answering:
    """An object whose `__arrow_c_array__` returns anything."""

    def __init__(self, answer: Any) -> None:
        """Return `answer` when asked."""
        self.answer = answer

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Return the answer, or raise it."""
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def numbers(dtype: str = "int64", size: int = 5) -> Any:
    """Return 0, 1, 2 and so on, in Arrow's own memory."""
    array = pa.array(np.arange(size, dtype=dtype))
    return pa.concat_arrays([array, array.slice(0, 0)])


def array_in(struct: Any) -> Any:
    """Return the `ArrowArray` in a struct that either class passes to `change`."""
    return getattr(struct, "array", struct)


def array_field(name: str, value: Any) -> Callable[[Any, Any], None]:
    """Change a field of the array."""

    def change(schema: Any, struct: Any) -> None:
        setattr(array_in(struct), name, value)

    return change


def schema_field(name: str, value: Any) -> Callable[[Any, Any], None]:
    """Change a field of the schema."""

    def change(schema: Any, struct: Any) -> None:
        setattr(schema, name, value)

    return change


either = pytest.mark.parametrize("show", [ByArray, ByDeviceArray])
