"""How each library imports a tensor, and the expected outcome."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np

from .cases import DTYPES, FLOAT8, INTEGERS, NUMBERS, PLAIN, TORCH_FLOAT8, Array
from .computing import double_onnxruntime, double_warp
from .making import late, view_of
from .ways import COPIED, MISREAD, NOT_SENT, SHARED, UNPROTECTED, Consumer

SIGNED = "int8 int16 int32 int64 uint8 float32 float64"

UNVERSIONED = (("read-only", "BufferError"), ("padded", "BufferError"))
"""Rules of consumers that ask for an unversioned capsule, which has no flags."""


def no_numpy(x: Any) -> Array:
    """For libraries whose only way to show elements is DLPack."""
    return dlx.from_dlpack(x).numpy()


def take_tensorflow(x: Any) -> Any:
    """TensorFlow imports capsules."""
    return late("tensorflow").experimental.dlpack.from_dlpack(x.__dlpack__())


def take_arrow(x: Any) -> Any:
    """`pyarrow.Array.from_dlpack`."""
    return late("pyarrow").Array.from_dlpack(x)


def take_tinygrad(x: Any) -> Any:
    """Tinygrad imports NumPy arrays."""
    return late("tinygrad").Tensor(np.from_dlpack(x)).realize()


def see_view(view: Any) -> dlx.Tensor:
    """`cuda.core` imports dtypes that it cannot export, so read the view's fields."""
    dtype = view.dtype.name
    return dlx.from_pointer(
        view.ptr,
        view.shape,
        dtype,
        strides=view.strides,
        owner=view,
        readonly=view.readonly,
    )


def is_writable(array: Any) -> bool:
    """Whether NumPy imports it as writable."""
    return bool(np.from_dlpack(array).flags.writeable)


CONSUMERS = [
    Consumer(
        "numpy",
        np.from_dlpack,
        lambda x: x,
        PLAIN,
        (("dtype", "BufferError"),),
        writable=lambda x: bool(x.flags.writeable),
        to=lambda: np.ndarray,
        converts=(
            ("float6_e2m3fn", "BufferError"),
            ("float6_e3m2fn", "BufferError"),
            ("padded", "BufferError"),
            ("handle64", "BufferError"),
            ("float4_e2m1fnx2", "BufferError"),
            ("float4_e2m1fn", "BufferError"),
        ),
    ),
    Consumer(
        "torch",
        lambda x: late("torch").from_dlpack(x),
        lambda x: x.numpy(),
        f"{PLAIN} bfloat16 complex32 {TORCH_FLOAT8} float4_e2m1fnx2",
        (
            ("dtype", "BufferError"),
            ("negative", "RuntimeError"),
            ("protected", UNPROTECTED),
        ),
        writable=lambda x: True,
        to=lambda: late("torch").Tensor,
        converts=(
            ("dtype", "BufferError"),
            ("negative", COPIED),
            ("protected", COPIED),
        ),
        doubles=SIGNED,
    ),
    Consumer(
        "jax",
        lambda x: late("jax.numpy").from_dlpack(x),
        np.asarray,
        f"{PLAIN} bfloat16 {FLOAT8}",
        (
            ("dtype", "JaxRuntimeError"),
            ("empty", SHARED),
            ("gaps", "JaxRuntimeError"),
            ("offset", COPIED),
        ),
        to=lambda: late("jax").Array,
        converts=(
            ("padded", "BufferError"),
            ("dtype", "BufferError"),
            ("empty", SHARED),
            ("gaps", COPIED),
            ("offset", COPIED),
        ),
    ),
    Consumer(
        "tensorflow-cpu",
        take_tensorflow,
        lambda x: x.numpy(),
        f"{PLAIN} bfloat16",
        (
            *UNVERSIONED,
            ("dtype", "InvalidArgumentError"),
            ("strided", "InvalidArgumentError"),
            ("offset", NOT_SENT),
        ),
        to=lambda: late("tensorflow").Tensor,
        converts=(
            ("padded", "BufferError"),
            ("dtype", "BufferError"),
            ("strided", COPIED),
            ("protected", COPIED),
            ("offset", COPIED),
        ),
    ),
    Consumer(
        "paddlepaddle",
        lambda x: late("paddle").from_dlpack(x),
        lambda x: x.numpy(),
        f"{PLAIN} bfloat16 float8_e4m3fn float8_e5m2",
        (
            ("dtype", "NotImplementedError"),
            ("ndim>9", "RuntimeError"),
            ("negative", NOT_SENT),
            ("protected", UNPROTECTED),
        ),
        writable=lambda x: True,
        to=lambda: late("paddle").Tensor,
        converts=(
            ("dtype", "BufferError"),
            ("ndim>9", "BufferError"),
            ("negative", COPIED),
            ("protected", COPIED),
        ),
        doubles=SIGNED,
    ),
    Consumer(
        "mlx",
        lambda x: late("mlx.core").from_dlpack(x),
        np.asarray,
        f"bool {INTEGERS} float32 float16 bfloat16 complex64",
        (
            ("float64", f"{MISREAD} as float32"),
            ("complex128", f"{MISREAD} as complex64"),
            ("dtype", "ValueError"),
            ("negative", "ValueError"),
            ("empty", SHARED),
            ("any", COPIED),
        ),
        to=lambda: late("mlx.core").array,
        converts=(("dtype", "BufferError"), ("empty", SHARED), ("any", COPIED)),
        doubles=f"{INTEGERS} float32",
    ),
    Consumer(
        "warp-lang",
        lambda x: late("warp").from_dlpack(x),
        lambda x: x.numpy(),
        f"bool {NUMBERS} float16 bfloat16",
        (
            *UNVERSIONED,
            ("handle64", "ValueError"),
            ("dtype", "RuntimeError"),
            ("ndim>4", "RuntimeError"),
            ("ndim<1", "IndexError"),
        ),
        writable=lambda x: True,
        to=lambda: late("warp").array,
        converts=(
            ("padded", "BufferError"),
            ("dtype", "BufferError"),
            ("ndim>4", "BufferError"),
            ("ndim<1", "BufferError"),
            ("protected", COPIED),
        ),
        double=double_warp,
        doubles="float32",
    ),
    Consumer(
        "apache-tvm-ffi",
        lambda x: late("tvm_ffi").from_dlpack(x),
        no_numpy,
        DTYPES,
        (("padded", "BufferError"), ("protected", UNPROTECTED)),
        writable=lambda x: True,
        to=lambda: late("tvm_ffi").Tensor,
        converts=(("padded", "BufferError"), ("protected", COPIED)),
        double=None,
    ),
    Consumer(
        "cuda-core",
        view_of,
        lambda x: see_view(x).numpy(),
        f"{PLAIN} bfloat16",
        (
            ("float4_e2m1fnx2", "NotImplementedError"),
            ("dtype", "TypeError"),
        ),
        writable=lambda x: not x.readonly,
        see=see_view,
        to=lambda: late("cuda.core.utils").StridedMemoryView,
        converts=(
            ("float4_e2m1fnx2", "NotImplementedError"),
            ("dtype", "TypeError"),
            ("negative", COPIED),
            ("bfloat16+protected", COPIED),
        ),
        unseen=(("dtype", "CopyRefused"), ("bfloat16", "CopyRefused")),
        double=None,
    ),
    Consumer(
        "array-api-strict",
        lambda x: late("array_api_strict").from_dlpack(x),
        lambda x: np.from_dlpack(x),
        f"bool {NUMBERS} complex64 complex128",
        (("float16", "TypeError"), ("dtype", "BufferError")),
        writable=is_writable,
        to=lambda: late("array_api_strict"),
        converts=(("dtype", "BufferError"),),
    ),
    Consumer(
        "onnxruntime",
        lambda x: late("onnxruntime").OrtValue.from_dlpack(x),
        lambda x: x.numpy(),
        f"bool {NUMBERS} float16 bfloat16 {TORCH_FLOAT8} float4_e2m1fn",
        (
            *UNVERSIONED,
            ("dtype", "RuntimeError"),
            ("strided", "RuntimeError"),
        ),
        writable=lambda x: True,
        to=lambda: late("onnxruntime").OrtValue,
        converts=(
            ("padded", "BufferError"),
            ("dtype", "BufferError"),
            ("strided", COPIED),
            ("protected", COPIED),
        ),
        double=double_onnxruntime,
        doubles="int32 int64 float32 float64",
    ),
    Consumer(
        "pyarrow",
        take_arrow,
        lambda x: x.to_numpy(zero_copy_only=False),
        f"{NUMBERS} float16",
        (
            ("unversioned", "ValueError"),
            ("ndim<1", "ArrowInvalid"),
            ("ndim>1", "ArrowInvalid"),
            ("float4_e2m1fnx2", "ArrowTypeError"),
            ("dtype", "ArrowInvalid"),
        ),
        writable=lambda x: bool(x.buffers()[1].is_mutable),
        one_dimension=True,
        to=lambda: late("pyarrow").Array,
        converts=(
            ("ndim<1", "BufferError"),
            ("ndim>1", "BufferError"),
            ("dtype", "BufferError"),
        ),
        double=lambda x: late("pyarrow.compute").add(x, x),
    ),
    Consumer(
        "awkward",
        lambda x: late("awkward").from_dlpack(x),
        lambda x: np.asarray(late("awkward").to_numpy(x)),
        PLAIN,
        (("dtype", "BufferError"), ("ndim<1", "TypeError")),
        see=lambda x: dlx.from_dlpack(late("awkward").to_numpy(x)),
        writable=lambda x: is_writable(late("awkward").to_numpy(x)),
        to=lambda: late("awkward"),
        converts=(("dtype", "BufferError"), ("ndim<1", "BufferError")),
    ),
    Consumer(
        "tinygrad",
        take_tinygrad,
        lambda x: x.numpy(),
        f"bool {NUMBERS} float16",
        to=lambda: late("tinygrad").Tensor,
        converts=(("dtype", "BufferError"), ("empty", SHARED), ("any", COPIED)),
        see=lambda x: dlx.from_dlpack(x.numpy()),
        imports=False,
    ),
    Consumer(
        "nanoarrow",
        lambda x: late("nanoarrow").c_buffer(x),
        np.asarray,
        f"bool {NUMBERS} float16",
        (
            ("complex64", "error"),
            ("complex128", "error"),
            ("dtype", "BufferError"),
            ("gaps", "BufferError"),
            ("strided", MISREAD),
        ),
        flat=True,
        double=None,
    ),
    Consumer(
        "memoryview",
        memoryview,
        np.asarray,
        PLAIN,
        (("dtype", "BufferError"),),
        writable=lambda x: not x.readonly,
        double=None,
    ),
]
