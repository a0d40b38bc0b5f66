"""How each library makes the tensors that are sent, and what dlx must see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dlx

from .cases import (
    DTYPES,
    FLAT,
    FLOAT6,
    FLOAT8,
    LAYOUTS,
    NUMBERS,
    PLAIN,
    SHAPE,
    SIZE,
    TORCH_FLOAT8,
    elements,
    ones_and_twos,
)
from .making import (
    NUMPY,
    Form,
    bytes_of,
    in_array,
    in_ctypes,
    in_memoryview,
    in_mlx,
    in_onnxruntime,
    in_paddle,
    in_tinygrad,
    in_torch,
    in_warp,
    late,
    own,
    tensor_of,
    view_of,
)

EVERYWHERE = "row-major 1-d 0-d empty size-1 strided transposed"


@dataclass(frozen=True)
class Producer:
    """A library that exports tensors; dlx must see what the library says of them."""

    name: str
    """The name of the library on PyPI."""
    make: Callable[[Any], Any]
    """Make an object with the elements of a NumPy array, 4 by 6 or 24."""
    dtypes: str = ""
    """Dtypes of its objects that dlx reads."""
    layouts: str = EVERYWHERE
    forms: Mapping[str, Form] = field(default_factory=dict)
    """Layouts that it spells differently."""
    formed_by_numpy: bool = False
    """Whether NumPy makes the layout, because its objects cannot be indexed."""
    views: bool = True
    """Whether a layout is a view with strides; if not, a row-major copy."""
    flat: bool = False
    """Whether its objects have one dimension."""
    readonly: str = ""
    """Layouts that dlx must see as read-only; "all" for every tensor."""
    unversioned: bool = False
    """Whether its capsules cannot say read-only."""
    address: Callable[[Any], int] | None = None
    """The address of the first element, if the library reveals it."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Dtypes that dlx refuses, with the error; "" for all dtypes."""

    def of_dtype(self, dtype: str, flat: bool) -> Any:
        """Make ones and twos of a dtype."""
        numbers = ones_and_twos(dtype)
        return self.make(numbers.reshape(-1) if flat or self.flat else numbers)

    def of_layout(self, layout: str) -> Any:
        """Make a layout of different float32 numbers."""
        form = self.forms.get(layout, (FLAT if self.flat else LAYOUTS)[layout])
        plain = elements().reshape(-1) if self.flat else elements()
        return (
            self.make(form(plain)) if self.formed_by_numpy else form(self.make(plain))
        )


class Own(Producer):
    """dlx as producer, of dtypes with which nothing can compute, too."""

    def of_dtype(self, dtype: str, flat: bool) -> Any:
        """Make a tensor of arbitrary bytes."""
        return tensor_of(dtype, (SIZE,) if flat else SHAPE)


IMMUTABLE = "row-major 1-d 0-d empty size-1 strided transposed broadcast negative 32-d"

PRODUCERS = [
    Own(
        "dlx",
        dlx.from_dlpack,
        DTYPES,
        " ".join(LAYOUTS),
        forms=NUMPY,
        formed_by_numpy=True,
        readonly="broadcast read-only",
        address=lambda x: int(x.data_ptr),
    ),
    Producer(
        "numpy",
        own,
        f"{PLAIN} bfloat16 complex32 {FLOAT8} {FLOAT6} float4_e2m1fn",
        " ".join(LAYOUTS),
        forms=NUMPY,
        readonly="broadcast read-only",
        address=lambda x: int(x.ctypes.data),
    ),
    Producer(
        "torch",
        in_torch,
        f"{PLAIN} bfloat16 complex32 {TORCH_FLOAT8}",
        f"{EVERYWHERE} broadcast offset 32-d",
        forms={"broadcast": lambda x: x[0].expand(SHAPE)},
        address=lambda x: int(x.data_ptr()),
    ),
    Producer(
        "jax",
        lambda numbers: late("jax.numpy").asarray(numbers),
        f"{PLAIN} bfloat16 {FLOAT8} float4_e2m1fn",
        IMMUTABLE,
        forms={"broadcast": lambda x: late("jax.numpy").broadcast_to(x[0], SHAPE)},
        views=False,
        readonly="all",
        address=lambda x: int(x.unsafe_buffer_pointer()),
    ),
    Producer(
        "tensorflow-cpu",
        lambda numbers: late("tensorflow").constant(numbers),
        f"{PLAIN} bfloat16",
        "row-major 0-d empty size-1 strided transposed broadcast 32-d",
        forms={
            "transposed": lambda x: late("tensorflow").transpose(x),
            "broadcast": lambda x: late("tensorflow").broadcast_to(x[0], SHAPE),
            "32-d": lambda x: late("tensorflow").reshape(x, (1,) * 30 + SHAPE),
        },
        views=False,
        refused={
            name: "InvalidArgumentError"
            for name in f"{FLOAT8} float4_e2m1fn".split()
            if name not in ("float8_e3m4", "float8_e4m3", "float8_e8m0fnu")
        },
        readonly="all",
    ),
    Producer(
        "paddlepaddle",
        in_paddle,
        "bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64 "
        "complex128 bfloat16 float8_e4m3fn float8_e5m2",
        EVERYWHERE,
        address=lambda x: int(x.data_ptr()),
    ),
    Producer(
        "mlx",
        in_mlx,
        f"bool {NUMBERS} float16 bfloat16 complex64",
        f"{EVERYWHERE} broadcast",
        forms={"broadcast": lambda x: late("mlx.core").broadcast_to(x[0], SHAPE)},
        readonly="all",
    ),
    Producer(
        "warp-lang",
        in_warp,
        f"bool {NUMBERS} float16 bfloat16",
        "row-major 1-d empty size-1 strided transposed offset",
        forms={"transposed": lambda x: x.transpose()},
        address=lambda x: int(x.ptr),
        unversioned=True,
    ),
    Producer(
        "apache-tvm-ffi",
        lambda numbers: late("tvm_ffi").from_dlpack(dlx.from_dlpack(numbers)),
        f"{PLAIN} bfloat16 complex32 {FLOAT8}",
        " ".join(LAYOUTS),
        forms=NUMPY,
        formed_by_numpy=True,
        address=lambda x: int(x.data_ptr()),
    ),
    Producer(
        "cuda-core",
        view_of,
        PLAIN,
        " ".join(LAYOUTS),
        forms=NUMPY,
        formed_by_numpy=True,
        readonly="broadcast read-only",
        address=lambda x: int(x.ptr),
    ),
    Producer(
        "array-api-strict",
        lambda numbers: late("array_api_strict").asarray(numbers),
        f"bool {NUMBERS} complex64 complex128",
        f"{EVERYWHERE} broadcast negative 32-d",
        readonly="broadcast",
        forms={
            "broadcast": lambda x: late("array_api_strict").broadcast_to(
                x[0, :], SHAPE
            ),
            "1-d": lambda x: x[1, :],
            "empty": lambda x: x[:0, :],
            "32-d": lambda x: late("array_api_strict").reshape(x, (1,) * 30 + SHAPE),
        },
    ),
    Producer(
        "onnxruntime",
        in_onnxruntime,
        f"bool {NUMBERS} float16",
        "row-major 1-d 0-d empty size-1 offset 32-d",
        forms=NUMPY,
        formed_by_numpy=True,
        address=lambda x: int(x.data_ptr()),
        unversioned=True,
    ),
    Producer(
        "pyarrow",
        lambda numbers: late("pyarrow").array(numbers),
        f"{NUMBERS} float16",
        " ".join(FLAT),
        flat=True,
        readonly="all",
    ),
    Producer(
        "nanoarrow",
        lambda numbers: late("nanoarrow").Array(numbers),
        f"{NUMBERS} float16",
        "1-d",
        flat=True,
        readonly="all",
    ),
    Producer(
        "arro3-core",
        lambda numbers: late("arro3.core").Array.from_numpy(numbers),
        f"{NUMBERS} float16",
        " ".join(FLAT),
        forms={
            "empty": lambda x: x.slice(0, 0),
            "offset": lambda x: x.slice(1, SIZE - 1),
        },
        flat=True,
        readonly="all",
        refused={"bool": "BufferError"},
    ),
    Producer("bytes", bytes_of, "uint8", "", flat=True, readonly="all"),
    Producer("array.array", in_array, NUMBERS, "1-d empty", flat=True),
    Producer("ctypes", in_ctypes, f"bool {NUMBERS}", "row-major"),
    Producer("memoryview", in_memoryview, f"bool {NUMBERS}", "row-major"),
    Producer(
        "tinygrad",
        in_tinygrad,
        f"bool {NUMBERS}",
        "row-major 1-d",
        formed_by_numpy=True,
        views=False,
    ),
    Producer(
        "ndonnx",
        lambda x: late("ndonnx").asarray(x),
        layouts="",
        refused={"": "ValueError"},
    ),
]
