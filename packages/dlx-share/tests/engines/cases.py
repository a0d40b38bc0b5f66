"""Tensors that engines carry, made by name in any process, and what is seen of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import dlx
import numpy as np
from support.pickled_classes import Bare, Labelled

MIB = 1 << 20
_TORCH = "bfloat16 float8_e5m2 float8_e4m3fn float4_e2m1fn_x2 float32 int64 complex64"
_JAX = "bfloat16 float8_e4m3fn float32 int32 complex64"
_ML_DTYPES = "bfloat16 float8_e5m2 int4 float4_e2m1fn"
_DLX = "bfloat16 float8_e4m3fn int4 float4_e2m1fn float32 float32x4"


def _array(dtype: Any = "float32") -> Any:
    return np.arange(24).reshape(4, 6).astype(dtype)


def _tensor(dtype: str) -> dlx.Tensor:
    return dlx.from_buffer(bytearray(range(96)), (2, 3), dtype, copy=True)


def _torch(dtype: str) -> Any:
    torch = import_module("torch")
    return torch.arange(24, dtype=torch.uint8).view(getattr(torch, dtype))


def _jax(dtype: str = "float32") -> Any:
    return import_module("jax.numpy").arange(24).reshape(4, 6).astype(dtype)


def _mlx(dtype: str = "float32", size: int = 24) -> Any:
    mx = import_module("mlx.core")
    x = mx.arange(size).reshape(4, size // 4).astype(getattr(mx, dtype))
    mx.eval(x)  # In another thread MLX cannot.
    return x


def _mlx_transposed() -> Any:
    x = _mlx().T
    import_module("mlx.core").eval(x)
    return x


def _bfloat16(shape: tuple[int, ...]) -> Any:
    torch = import_module("torch")
    return torch.ones(shape, dtype=torch.bfloat16)


def _ml_dtype(name: str) -> Any:
    return _array(getattr(import_module("ml_dtypes"), name))


CASES: dict[str, Callable[[], Any]] = {
    **{f"torch {each}": partial(_torch, each) for each in _TORCH.split()},
    "torch strided": lambda: _bfloat16((4, 6))[::2, 1::2],
    "torch transposed": lambda: _bfloat16((4, 6)).t(),
    "torch broadcast": lambda: _bfloat16((1, 6)).expand(4, 6),
    "torch empty": lambda: _bfloat16((0, 6)),
    "torch 0-d": lambda: _bfloat16(()),
    **{f"jax {each}": partial(_jax, each) for each in _JAX.split()},
    "jax empty": lambda: _jax()[:0],
    "jax 0-d": lambda: _jax()[1, 2],
    "mlx bfloat16": lambda: _mlx("bfloat16"),
    "mlx float32": _mlx,
    "mlx transposed": _mlx_transposed,
    **{f"numpy {name}": partial(_ml_dtype, name) for name in _ML_DTYPES.split()},
    "numpy float32": _array,
    "numpy transposed": lambda: _array().T,
    "numpy strided": lambda: _array()[::2, ::-2],
    "numpy broadcast": lambda: np.broadcast_to(_array()[0], (4, 6)),
    "numpy empty": lambda: _array()[:0],
    "numpy 0-d": lambda: np.array(5.0),
    **{f"dlx {each}": partial(_tensor, each) for each in _DLX.split()},
    "dlx strided": lambda: dlx.from_dlpack(_array())[::2, ::-2],
    "dlx transposed": lambda: dlx.from_dlpack(_array().T),
    "dlx broadcast": lambda: dlx.from_dlpack(np.broadcast_to(_array()[0], (4, 6))),
    "dlx empty": lambda: dlx.from_dlpack(_array())[:0],
    "dlx 0-d": lambda: dlx.from_dlpack(np.array(5.0)),
    "dlx read-only": lambda: dlx.from_buffer(bytes(range(24)), (4, 6), "uint8"),
    "mixin of one tensor": lambda: Bare(_array()),
    "mixin of attributes": lambda: Labelled(_array(), "a label"),
}
"""A maker of each; the first word is the library."""

BIG: dict[str, Callable[[], Any]] = {
    "torch": lambda: _bfloat16((MIB // 2,)),
    "jax": lambda: _jax("bfloat16").repeat(MIB // 48),
    "numpy": lambda: np.ones(MIB, np.uint8),
    "mlx": lambda: _mlx(size=MIB // 4),
    "dlx": lambda: dlx.from_dlpack(np.ones(MIB, np.uint8)),
    "mixin": lambda: Bare(np.ones(MIB, np.uint8)),
}
"""One of each library, of a MiB: memory with pages of its own."""


def bytes_of(x: Any) -> bytes:
    """Return the elements of a tensor in order."""
    return bytes(dlx.from_dlpack(x).to(device="cpu", copy=True).raw())


def describe(x: Any) -> tuple[Any, ...]:
    """Say what has to be the same at the other end, in any process."""
    t, label = dlx.from_dlpack(x), x.label if isinstance(x, Labelled) else None
    kind = type(x).__module__, type(x).__qualname__
    readonly = isinstance(x, dlx.Tensor) and t.readonly
    return kind, label, str(t.dtype), t.shape, readonly, bytes_of(x)


def address(x: Any) -> int:
    """Return where the elements begin."""
    return dlx.from_dlpack(x).data_ptr


class Place(NamedTuple):
    """Where memory is, in terms that count in every process."""

    device: str
    inode: int
    offset: int


def place(at: int) -> Place:
    """Return the file behind an address, and the offset in it."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, device, inode = line.split()[:5]
        low, high = (int(each, 16) for each in span.split("-"))
        if low <= at < high:
            return Place(device, int(inode), int(offset, 16) + at - low)
    raise LookupError(f"nothing is mapped at {at:#x}")


def process() -> int:
    """Return the number of this process."""
    return os.getpid()
