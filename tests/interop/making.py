"""Objects of each library with the elements of a NumPy array."""

from __future__ import annotations

import array
import functools
import importlib
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np

from .cases import SIZE, aligned

Form = Callable[[Any], Any]


@functools.cache
def late(name: str) -> Any:
    """Import a module when it is first used; to look it up again would be timed."""
    return importlib.import_module(name)


# NumPy and what wraps its arrays


def own(numbers: Any) -> Any:
    """Return the array itself."""
    return numbers


def misaligned(numbers: Any) -> Any:
    """Return the same elements, misaligned by one byte."""
    memory = aligned(numbers.nbytes, 1).view(np.uint8)
    moved = memory[: numbers.nbytes].view(numbers.dtype).reshape(numbers.shape)
    moved[...] = numbers
    return moved


def frozen(numbers: Any) -> Any:
    """Return a read-only view."""
    view = numbers.view()
    view.flags.writeable = False
    return view


def view_of(x: Any) -> Any:
    """Return `cuda.core`'s view of an array."""
    view = late("cuda.core.utils").StridedMemoryView
    return view.from_dlpack(x, stream_ptr=-1)


NUMPY: dict[str, Form] = {
    "0-d": lambda x: x[1, 2, ...],
    "misaligned": misaligned,
    "read-only": frozen,
}


# dlx's own, of every dtype


def tensor_of(dtype: str, shape: tuple[int, ...]) -> dlx.Tensor:
    """Return 24 elements of any dtype, with the bytes 0, 1, 2 and so on."""
    kind = dlx.DType(dtype)
    nbytes = -(-SIZE * kind.bits * kind.lanes // 8)
    memory = aligned(nbytes)
    memory[...] = np.arange(nbytes) % (2 if dtype == "bool" else 60)
    return dlx.from_pointer(memory.ctypes.data, shape, dtype, owner=memory)


# Buffers of the standard library


def bytes_of(numbers: Any) -> bytes:
    """Return the elements as `bytes`."""
    made: bytes = badly(lambda: numbers.astype(np.uint8).tobytes())
    return made


def in_bytearray(numbers: Any) -> tuple[bytearray, int]:
    """Return a bytearray with the elements, and the aligned offset where they begin."""
    memory = bytearray(numbers.nbytes + 256)
    start = -np.frombuffer(memory, dtype=np.uint8).ctypes.data % 256
    memory[start : start + numbers.nbytes] = numbers.tobytes()
    return memory, start


def in_ctypes(numbers: Any) -> Any:
    """Return a ctypes array with the same dimensions."""
    kind: Any = np.ctypeslib.as_ctypes_type(numbers.dtype)
    for extent in reversed(numbers.shape):
        kind *= extent
    return kind.from_buffer(*in_bytearray(numbers))


def in_memoryview(numbers: Any) -> Any:
    """Return a memoryview with the same dimensions."""
    memory, start = in_bytearray(numbers)
    view = memoryview(memory)[start : start + numbers.nbytes]
    return view.cast(numbers.dtype.char, numbers.shape)


def badly(make: Callable[[], Any]) -> Any:
    """Make a buffer again until it is not aligned to 64 bytes, so that runs agree."""
    spacers = []
    for size in range(100):
        made = make()
        if np.frombuffer(made, dtype=np.uint8).ctypes.data % 64:
            break
        spacers.append((made, bytearray(16 * size)))
    return made


def in_array(numbers: Any) -> Any:
    """Return an `array.array`."""
    return badly(lambda: array.array(numbers.dtype.char, numbers.tolist()))


# Other libraries


def in_torch(numbers: Any) -> Any:
    """Return a torch tensor; torch does not convert every NumPy dtype that it has."""
    torch = late("torch")
    name = str(numbers.dtype)
    if name.startswith(("bfloat", "float8")):
        return torch.from_numpy(numbers.astype(np.float32)).to(getattr(torch, name))
    if name == "complex32":
        return torch.from_numpy(numbers.astype(np.complex64)).to(torch.complex32)
    return torch.from_numpy(numbers).clone()


def in_paddle(numbers: Any) -> Any:
    """Return a Paddle tensor; `to_tensor` accepts only the common dtypes."""
    paddle = late("paddle")
    name = str(numbers.dtype)
    if name.startswith(("bfloat", "float8")):
        return paddle.to_tensor(numbers.astype(np.float32)).astype(name)
    return paddle.to_tensor(numbers)


def in_mlx(numbers: Any) -> Any:
    """Return an MLX array; MLX reads float64 as float32 unless told."""
    mlx = late("mlx.core")
    name = str(numbers.dtype)
    if name == "bfloat16":
        return mlx.array(numbers.astype(np.float32)).astype(mlx.bfloat16)
    return mlx.array(numbers, dtype=getattr(mlx, name if name != "bool" else "bool_"))


def in_warp(numbers: Any) -> Any:
    """Return a Warp array, of Warp's own dtypes."""
    warp = late("warp")
    dtype = getattr(warp, str(numbers.dtype))
    if str(numbers.dtype) == "bfloat16":
        return warp.array(numbers.astype(np.float32).tolist(), dtype=dtype)
    return warp.array(numbers, dtype=dtype)


def in_onnxruntime(numbers: Any) -> Any:
    """Return an ONNX Runtime value, which refers to the array."""
    return late("onnxruntime").OrtValue.ortvalue_from_numpy(numbers)


def in_tinygrad(numbers: Any) -> Any:
    """Return the buffer of a tinygrad tensor."""
    return badly(lambda: late("tinygrad").Tensor(numbers).data())
