"""What a library itself says of a tensor, read without dlx and without DLPack."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dlx
import numpy as np

TRUE = bytes([0, *[1] * 255])


class Said(NamedTuple):
    """The elements in row-major order and native bytes, and their writability."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes
    protected: bool = False
    """Whether the library treats the memory as read-only."""
    unsaid: bool = False
    """Whether its exports cannot say so: some consumers then import it as writable."""
    tracked: bool = False
    """Whether operations are recorded for gradients, which an export would lose."""

    def __str__(self) -> str:
        """Return the elements as numbers, where NumPy has the dtype, else in hex."""
        try:
            numbers = str(self.numbers().tolist())
        except TypeError:
            numbers = self.data.hex()
        numbers = numbers if len(numbers) < 200 else numbers[:200] + " ..."
        return f"{self.dtype}{list(self.shape)} {numbers}"

    def content(self) -> tuple[Any, ...]:
        """Return what is compared; in a bool, any byte other than 0 is True."""
        data = self.data
        if self.dtype == "bool":
            data = data.translate(TRUE)
        return self.shape, self.dtype, data

    def numbers(self) -> Any:
        """Return the elements as a NumPy array."""
        return np.frombuffer(self.data, numpy_dtype(self.dtype)).reshape(self.shape)


def numpy_dtype(name: str) -> Any:
    """Return the dtype of this name, of NumPy or ml_dtypes."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def memory(
    address: int, shape: Sequence[int], strides: Sequence[int], item: int
) -> bytes:
    """Return elements of ``item`` bytes from an address; strides count elements."""
    if 0 in shape:
        return b""
    steps = [
        (extent - 1) * stride * item
        for extent, stride in zip(shape, strides, strict=True)
    ]
    first = sum(min(step, 0) for step in steps)
    span = sum(abs(step) for step in steps) + item
    raw = ctypes.string_at(address + first, span)
    inner = [stride * item for stride in strides]
    return np.ndarray(shape, f"V{item}", raw, -first, inner).tobytes()


def of_dlx(x: dlx.Tensor) -> Said | None:
    """Read a `dlx.Tensor` through its attributes alone."""
    data = memory(x.data_ptr, x.shape, x.strides, x.itemsize)
    unsaid = x.readonly and "maybe readonly" in repr(x)
    return Said(x.shape, str(x.dtype), data, x.readonly, unsaid)


def of_numpy(x: Any) -> Said | None:
    """Read a NumPy array; None if its elements are masked or not numbers."""
    dtype = x.dtype
    ours = dtype.type.__module__ == "ml_dtypes"
    if isinstance(x, np.ma.MaskedArray) or not (ours or dtype.kind in "biufc"):
        return None
    # A plain array: a subclass may override methods.
    plain = x.view(np.ndarray)
    if not dtype.isnative:
        plain = plain.astype(dtype.newbyteorder("="))
    return Said(x.shape, dtype.name, plain.tobytes(), not x.flags.writeable)


def is_plain_torch(x: Any) -> bool:
    """Whether a torch tensor has memory of its own that holds its numbers."""
    import torch

    if x.is_nested or x.layout != torch.strided or x.device.type != "cpu":
        return False
    if x.is_quantized or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return False
    if torch._is_functional_tensor(x):
        return False
    storage = x.untyped_storage()
    if storage.nbytes() < bytes_needed(x):
        return False
    disabled = torch._C._disabled_torch_dispatch_impl
    if getattr(type(x), "__torch_dispatch__", disabled) is disabled:
        return True
    # The memory of a wrapper subclass is elsewhere, unless it has some of its own.
    try:
        return bool(storage.data_ptr())
    except RuntimeError:
        return False


def bytes_needed(x: Any) -> int:
    """Return how many bytes the storage of a torch tensor needs."""
    if x.numel() == 0 or x._is_zerotensor():
        return 0
    last = sum(
        (extent - 1) * step for extent, step in zip(x.shape, x.stride(), strict=True)
    )
    return int(x.storage_offset() + last + 1) * int(x.element_size())


def frozen_copy(x: Any) -> Any:
    """Return a NumPy scalar as a read-only array."""
    array = np.array(x)
    array.flags.writeable = False
    return array


def is_misaligned(y: Any) -> bool:
    """Whether a torch tensor is misaligned, so that kernels may end the process."""
    return package_of(y) == "torch" and bool(y.data_ptr() % y.element_size())


def cloned(x: Any) -> bytes:
    """Return the elements of a clone without lazy operations."""
    import torch

    if x._is_zerotensor():
        clone = torch.zeros(x.shape, dtype=x.dtype)
    else:
        clone = x.clone().resolve_conj().resolve_neg().contiguous()
    size = clone.numel() * clone.element_size()
    return ctypes.string_at(clone.data_ptr(), size) if size else b""


def of_torch(x: Any) -> Said | None:
    """Read a clone made by torch's own operators; None if the tensor has no numbers."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if not isinstance(x, torch.Tensor):
        return None
    # No mode or subclass may override the functions below.
    functions = torch._C.DisableTorchFunctionSubclass()
    dispatch = torch._C._DisableTorchDispatch()
    with functions, dispatch, _disable_current_modes(), torch.no_grad():
        if not is_plain_torch(x):
            return None
        plain = x.detach().as_subclass(torch.Tensor)
        if is_misaligned(plain):
            # It comes from another library, so it is not lazy.
            item = plain.element_size()
            data = memory(plain.data_ptr(), plain.shape, plain.stride(), item)
        else:
            data = cloned(plain)
    name = str(x.dtype).removeprefix("torch.").replace("_x2", "x2")
    return Said(tuple(x.shape), name, data, tracked=x.requires_grad)


def of_jax(x: Any) -> Said | None:
    """Read a JAX array through NumPy."""
    jax = sys.modules["jax"]
    if isinstance(x, jax.core.Tracer) or jax.dtypes.issubdtype(
        x.dtype, jax.dtypes.extended
    ):
        return None
    if x.is_deleted() or not x.is_fully_addressable:
        return None
    plain = np.asarray(x)
    return Said(x.shape, plain.dtype.name, plain.tobytes(), True, unsaid=True)


def of_tensorflow(x: Any) -> Said | None:
    """Read a TensorFlow tensor through NumPy; None for strings, handles and symbols."""
    tf = sys.modules["tensorflow"]
    if isinstance(x, tf.Variable):
        x = x.value()
    if not hasattr(x, "numpy") or not isinstance(x, tf.Tensor):
        return None
    if x.dtype in (tf.string, tf.variant, tf.resource) or x.dtype.is_quantized:
        return None
    plain = x.numpy()
    data = plain.tobytes()
    return Said(tuple(x.shape), plain.dtype.name, data, True, unsaid=True)


def of_mlx(x: Any) -> Said | None:
    """Read an MLX array through its buffer protocol, which lacks bfloat16."""
    import mlx.core as mx

    name = str(x.dtype).removeprefix("mlx.core.").removesuffix("_")
    plain = np.array(x.view(mx.uint16) if name == "bfloat16" else x)
    return Said(tuple(x.shape), name, plain.tobytes(), True, unsaid=True)


def of_paddle(x: Any) -> Said | None:
    """Read a Paddle tensor through NumPy, where bfloat16 and float8 are integers."""
    if not x.is_dense() or (x.size and not x._is_initialized()):
        return None
    name = str(x.dtype).removeprefix("paddle.")
    if name == "bfloat16" and "dtype=uint16" in repr(x.detach()):
        # Paddle has one name for both.
        name = "uint16"
    data = x.detach().numpy().tobytes()
    return Said(tuple(x.shape), name, data, tracked=not x.stop_gradient)


def of_arrow(x: Any) -> Said | None:
    """Read an Arrow array through pyarrow's conversion; None if it has nulls."""
    pa = sys.modules["pyarrow"]
    if isinstance(x, pa.Bool8Array) and not x.null_count:
        plain = x.to_numpy(zero_copy_only=False).astype(bool)
        return Said((len(x),), "bool", plain.tobytes(), protected=True)
    if isinstance(x, pa.Tensor) or hasattr(x, "to_tensor"):
        tensor = x if isinstance(x, pa.Tensor) else x.to_tensor()
        numbers = of_numpy(tensor.to_numpy())
        protected = not (isinstance(x, pa.Tensor) and x.is_mutable)
        return None if numbers is None else numbers._replace(protected=protected)
    if isinstance(x, pa.ChunkedArray):
        # One chunk is one piece of memory; those without elements do not count.
        chunks = [chunk for chunk in x.chunks if len(chunk)]
        empty = pa.array([], x.type)
        return of_arrow(*chunks or [empty]) if len(chunks) < 2 else None
    if not isinstance(x, pa.Array):
        return of_buffer(x)
    if x.null_count or not pa.types.is_primitive(x.type):
        return None
    if not (pa.types.is_integer(x.type) or pa.types.is_floating(x.type)):
        return None
    plain = x.to_numpy(zero_copy_only=False)
    return Said((len(x),), plain.dtype.name, plain.tobytes(), protected=True)


def of_tvm(x: Any) -> Said | None:
    """Read a tvm-ffi tensor through its attributes; None for complex dtypes."""
    try:
        name = str(x.dtype)
    except ValueError:
        # Without a dtype the itemsize is unknown.
        return None
    item = x.dtype.itemsize
    data = memory(x.data_ptr(), x.shape, x.strides, item)
    return Said(tuple(x.shape), name, data)


FORMATS = {
    "?": "bool",
    "Zf": "complex",
    "Zd": "complex",
    **dict.fromkeys("bhilqn", "int"),
    **dict.fromkeys("BHILQNPc", "uint"),
    **dict.fromkeys("efd", "float"),
}


def of_buffer(x: Any) -> Said | None:
    """Read a Python buffer; None unless its format is one number."""
    try:
        view = memoryview(x)
    except (TypeError, ValueError, BufferError):
        return None
    kind = FORMATS.get(view.format.lstrip("@="), "")
    if view.format[0] == "<" and sys.byteorder == "little":
        kind = FORMATS.get(view.format[1:], "")
    if not kind:
        return None
    name = kind if kind == "bool" else f"{kind}{8 * view.itemsize}"
    return Said(view.shape or (), name, view.tobytes(), view.readonly)


CTYPES = (ctypes.Array, ctypes._SimpleCData, ctypes.Structure)
BUFFERS = (bytes, bytearray, memoryview, array.array, mmap.mmap, *CTYPES)
READERS: dict[str, Callable[[Any], Said | None]] = {
    "torch": of_torch,
    "jax": of_jax,
    "jaxlib": of_jax,
    "tensorflow": of_tensorflow,
    "mlx": of_mlx,
    "paddle": of_paddle,
    "pyarrow": of_arrow,
    "tvm_ffi": of_tvm,
}


def package_of(x: Any) -> str:
    """Return the name of an object's library, or else of its package."""
    # Some classes of ctypes have no module.
    modules = [getattr(kind, "__module__", "") for kind in type(x).__mro__]
    names = [str(module).partition(".")[0] for module in modules]
    return next((name for name in names if name in READERS), names[0])


def says(x: Any) -> Said | None:
    """Return what the library says of ``x``; None if DLPack cannot describe it."""
    if isinstance(x, dlx.Tensor):
        return of_dlx(x)
    if isinstance(x, np.ndarray):
        return of_numpy(x)
    if isinstance(x, np.generic) and not isinstance(x, BUFFERS):
        # A new read-only array: a scalar is immutable.
        return of_numpy(frozen_copy(x))
    if isinstance(x, BUFFERS):
        return of_buffer(x)
    if (inside := getattr(x, "__truth__", None)) is not None:
        found: Said | None = inside()
        return found
    name = package_of(x)
    if name == "array_api_strict":
        return of_numpy(x._array)
    return READERS.get(name, of_buffer)(x)
