"""An array class in forty lines of Python, over ctypes memory.

It exports by method: each `__dlx_export__` call describes the memory afresh.
"""

from __future__ import annotations

import ctypes
import math
from importlib.util import find_spec
from typing import Any, Self

import dlx

_C_TYPES: dict[str, Any] = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}


class Array(dlx.ExchangeMixin):
    """Numbers in row-major order."""

    def __init__(
        self, shape: tuple[int, ...], dtype: str = "float32", memory: Any = None
    ) -> None:
        """Use ``memory``, a writable buffer of the right size, or allocate zeros."""
        if dtype not in _C_TYPES:
            raise TypeError(f"{dtype} is not one of {', '.join(_C_TYPES)}")
        self.shape, self.dtype = shape, dtype
        numbers = _C_TYPES[dtype] * math.prod(shape)
        self._numbers = numbers() if memory is None else numbers.from_buffer(memory)

    def __dlx_export__(self) -> dlx.Tensor:
        """Describe the memory, which ``_numbers`` owns."""
        address = ctypes.addressof(self._numbers)
        return dlx.from_pointer(address, self.shape, self.dtype, owner=self._numbers)

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Self:
        """Use the memory of ``tensor``, or a copy if ctypes cannot use it."""
        if tensor.readonly or not tensor.is_contiguous:
            tensor = tensor.to(copy=True)
        return cls(tensor.shape, str(tensor.dtype), tensor)

    @classmethod
    def __dlx_empty__(
        cls, shape: tuple[int, ...], dtype: dlx.DType, device: dlx.Device
    ) -> Self:
        """Allocate for C code."""
        if device != "cpu":
            raise BufferError(f"ctypes allocates on the CPU, not on {device}")
        return cls(shape, str(dtype))

    def _offset(self, index: tuple[int, ...]) -> int:
        offset = 0
        for i, extent in zip(index, self.shape, strict=True):
            if not 0 <= i < extent:
                raise IndexError(f"{index} is outside of {self.shape}")
            offset = offset * extent + i
        return offset

    def __getitem__(self, index: tuple[int, ...]) -> float:
        """Read one number."""
        number: float = self._numbers[self._offset(index)]
        return number

    def __setitem__(self, index: tuple[int, ...], number: float) -> None:
        """Write one number."""
        self._numbers[self._offset(index)] = number

    def __repr__(self) -> str:
        """Show shape, dtype and numbers."""
        return f"Array({self.shape}, {self.dtype!r}, {list(self._numbers)})"


def main() -> None:
    """Pass an array to each library, and let compiled code make a new one."""
    a = Array((2, 3))
    a[1, 2] = 5
    if find_spec("numpy"):
        import numpy as np

        np.from_dlpack(a)[0, 0] = 1  # the same memory
    if find_spec("torch"):
        import torch

        torch.from_dlpack(a)[0, 1] = 2
    print(a)
    if find_spec("tvm_ffi"):
        from compiled import load_doubled

        print(load_doubled()(a))  # an Array


if __name__ == "__main__":
    main()
