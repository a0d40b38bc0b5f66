"""The libraries that the suite knows by name, and how it finds others."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import metadata

from dlx_check.conformance.target import CannotCheck, Target, meant, wrong
from dlx_check.errors import described

__all__ = ["ABSENT", "TARGETS", "load"]

TARGETS = (
    Target(
        name="numpy",
        imports="import numpy as np",
        make="np.array",
        take="np.from_dlpack",
        show="np.array",
        address="lambda x: x.ctypes.data",
        write="lambda x, value: x.__setitem__((0,) * x.ndim, value)",
        writable="lambda x: x.flags.writeable",
        type="np.ndarray",
        tensors={
            "read-only": "np.frombuffer(bytes(24), np.float32)",
            "negative": "np.arange(1, 7, dtype=np.float32)[::-1]",
            "strided": "np.arange(1, 13, dtype=np.float32)[::2]",
            "broadcast": "np.broadcast_to(np.float32(1), 6)",
            "transposed": "np.arange(1, 7, dtype=np.float32).reshape(2, 3).T",
            "subclass": "np.arange(6, dtype=np.float32).view(np.recarray)",
        },
        cannot_export={
            "objects": "np.array([object()])",
            "strings": "np.array(['a'])",
            "dates": "np.array(['2020-01-01'], dtype='M8[D]')",
            "records": "np.zeros(3, dtype='i4,f4')",
            "byte order": "np.zeros(3, dtype=np.dtype('f4').newbyteorder())",
            "byte strides": "np.zeros(3, dtype='i1,f4')['f1']",
        },
        change="x.shape = (3, 2)",
        cpu="'cpu'",
        view="lambda x: x[1:]",
    ),
    Target(
        name="torch",
        imports="import torch",
        make="lambda a: torch.from_numpy(a.copy())",
        take="torch.from_dlpack",
        show="lambda x: x.detach().resolve_conj().resolve_neg().numpy().copy()",
        address="lambda x: x.data_ptr()",
        write="lambda x, value: x.__setitem__((0,) * x.ndim, value)",
        type="torch.Tensor",
        tensors={
            "strided": "torch.arange(1., 13.)[::2]",
            "broadcast": "torch.ones(1).expand(6)",
            "transposed": "torch.arange(1., 7.).reshape(2, 3).t()",
            "negated": "torch.tensor([1+2j, 3+4j]).conj().imag",
            "subclass": "torch.nn.Parameter(torch.ones(6), requires_grad=False)",
            "requires-grad": "torch.ones(6, requires_grad=True)",
            "conjugated": "torch.tensor([1+2j, 3+4j]).conj()",
        },
        cannot_export={
            "requires grad": "torch.ones(3, requires_grad=True)",
            "conjugated": "torch.tensor([1+2j]).conj()",
            "sparse": "torch.eye(3).to_sparse()",
            "quantized": "torch.quantize_per_tensor(torch.ones(3), 1., 0, torch.qint8)",
            "nested": "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])",
            "meta": "torch.ones(3, device='meta')",
            "fake": "fake.FakeTensorMode().from_tensor(torch.ones(3))",
        },
        warm="import torch._dynamo, torch._subclasses.fake_tensor as fake",
        free="x.data = y",
        change="x.t_()",
        cpu="'cpu'",
        view="lambda x: x[1:]",
    ),
    Target(
        name="jax",
        imports="import jax; jax.config.update('jax_platforms', 'cpu')",
        make="jax.numpy.array",
        take="jax.dlpack.from_dlpack",
        show="np.array",
        address="lambda x: x.unsafe_buffer_pointer()",
        writable="lambda x: False",
        type="jax.Array",
        tensors={
            "read-only": "jax.numpy.arange(6.)",
            "packed": "jax.numpy.array([1, 2, 3, 1, 5, 6], 'float4_e2m1fn')",
        },
        cannot_export={"keys": "jax.random.key(0)"},
        setup="jax.devices('cpu')",
        cpu="jax.devices('cpu')[0]",
        view="lambda x: x[1:]",
    ),
    Target(
        name="tvm_ffi",
        imports="import tvm_ffi",
        make="lambda a: tvm_ffi.from_dlpack(a)",
        take="tvm_ffi.from_dlpack",
        show="lambda x: np.from_dlpack(x).copy()",
        address="lambda x: x.data_ptr()",
        write="lambda x, value: np.from_dlpack(x).__setitem__((0,) * x.ndim, value)",
        type="tvm_ffi.Tensor",
        distribution="apache-tvm-ffi",
    ),
    Target(
        name="cuda.core",
        imports="import cuda.core\nfrom cuda.core.utils import StridedMemoryView",
        make="lambda a: StridedMemoryView.from_dlpack(a.copy(), stream_ptr=-1)",
        take="lambda x: StridedMemoryView.from_dlpack(x, stream_ptr=-1)",
        take_on="lambda x, s: StridedMemoryView.from_dlpack(x, stream_ptr=s)",
        take_cuda="lambda x: StridedMemoryView.from_cuda_array_interface(x, -1)",
        stream="cuda.core.LEGACY_DEFAULT_STREAM",
        show="lambda x: np.from_dlpack(x).copy()",
        address="lambda x: x.ptr",
        writable="lambda x: not x.readonly",
        type="StridedMemoryView",
        keywords=frozenset(),
        profiles="dlpack array-api table",
        distribution="cuda-core",
    ),
    Target(
        name="pyarrow",
        imports="import pyarrow as pa",
        make="pa.array",
        take="pa.Array.from_dlpack",
        show="lambda x: np.array(x.to_numpy())",
        address="lambda x: x.buffers()[1].address + x.offset * x.type.bit_width // 8",
        writable="lambda x: False",
        type="pa.Array",
        tensors={"read-only": "pa.array([1., 2., 3.], pa.float32())"},
        cannot_export={
            "nulls": "pa.array([1, None])",
            "strings": "pa.array(['a'])",
            "bools": "pa.array([True])",
        },
        keywords=frozenset(),
        dimensions=1,
        profiles="dlpack array-api",
    ),
    Target(
        name="array_api_strict",
        imports="import array_api_strict as xp",
        make="xp.asarray",
        take="xp.from_dlpack",
        show="lambda x: np.from_dlpack(x).copy()",
        address="lambda x: np.from_dlpack(x).ctypes.data",
        write="lambda x, value: x.__setitem__((0,) * x.ndim, value)",
        writable="lambda x: np.from_dlpack(x).flags.writeable",
        type="type(xp.empty(0))",
        tensors={
            "negative": "xp.arange(1., 7., dtype=xp.float32)[::-1]",
            "strided": "xp.arange(1., 13., dtype=xp.float32)[::2]",
            "broadcast": "xp.broadcast_to(xp.ones(1, dtype=xp.float32), (6,))",
            "transposed": "xp.reshape(xp.arange(1., 7., dtype=xp.float32), (2, 3)).T",
        },
        distribution="array-api-strict",
    ),
    Target(
        name="dlx",
        imports="import dlx",
        make="lambda a: dlx.from_dlpack(np.array(a))",
        take="dlx.from_dlpack",
        take_on="lambda x, s: dlx.from_dlpack(x, stream=s)",
        take_cuda="lambda x: dlx.from_dlpack(x, device='cuda:0')",
        stream="dlx.Stream(1)",
        on_device="lambda p, s, d: dlx.from_pointer("
        "p, (6,), 'float32', device=d, stream=s)",
        work_on="dlx.stream",
        driver="DLX_LIBCUDA DLX_LIBAMDHIP",
        show="lambda x: x.numpy().copy()",
        address="lambda x: x.data_ptr",
        writable="lambda x: not x.readonly",
        type="dlx.Tensor",
        tensors={
            "read-only": "dlx.from_dlpack(np.frombuffer(bytes(24), np.float32))",
            "negative": "dlx.from_dlpack(np.arange(1, 7, dtype=np.float32)[::-1])",
            "strided": "dlx.from_dlpack(np.arange(1, 13, dtype=np.float32)[::2])",
            "broadcast": "dlx.from_dlpack(np.broadcast_to(np.float32(1), 6))",
            "transposed": "dlx.from_dlpack("
            "np.arange(1, 7, dtype=np.float32).reshape(2, 3).T)",
        },
    ),
    Target(
        name="mlx",
        imports="import mlx.core as mx",
        make="mx.array",
        take="mx.from_dlpack",
        show="np.array",
        address="lambda x: np.asarray(x).ctypes.data",
        type="mx.array",
        tensors={
            "strided": "mx.arange(1., 13.)[::2]",
            "broadcast": "mx.broadcast_to(mx.array(1.), (6,))",
            "negative": "mx.arange(1., 7.)[::-1]",
            "transposed": "mx.arange(1., 7.).reshape(2, 3).T",
        },
        view="lambda x: x[1:]",
        keywords=frozenset(("copy",)),
    ),
    Target(
        name="paddle",
        imports="import paddle",
        # Paddle reads NumPy's uint16 as bfloat16, and refuses None.
        make="lambda a: paddle.to_tensor(None if a.dtype == 'u2' else a)",
        take="paddle.from_dlpack",
        show="lambda x: x.detach().numpy().copy()",
        address="lambda x: x.data_ptr()",
        write="lambda x, value: x.__setitem__((0,) * x.ndim, value)",
        type="paddle.Tensor",
        tensors={
            "strided": "paddle.arange(1., 13.)[::2]",
            "transposed": "paddle.arange(1., 7.).reshape([2, 3]).t()",
            "requires-grad": "paddle.ones([6]).requires_grad_(True)",
        },
        cannot_export={
            "requires grad": "paddle.ones([3]).requires_grad_(True)",
            "sparse": "paddle.sparse.sparse_coo_tensor([[0], [1]], [1.], [3, 3])",
        },
        cpu="paddle.CPUPlace()",
        view="lambda x: x[1:]",
        distribution="paddlepaddle",
    ),
    Target(
        name="tensorflow",
        imports="import tensorflow as tf",
        make="tf.constant",
        take="lambda x: tf.experimental.dlpack.from_dlpack(x.__dlpack__())",
        show="lambda x: x.numpy().copy()",
        address="lambda x: np.from_dlpack(x).ctypes.data",
        writable="lambda x: False",
        type="type(tf.constant(1.))",
        tensors={"read-only": "tf.range(6.)"},
        cannot_export={
            "strings": "tf.constant(['a'])",
            "ragged": "tf.ragged.constant([[1.], [1., 2.]])",
            "sparse": "tf.sparse.from_dense(tf.eye(3))",
            "variants": "tf.data.experimental.to_variant(tf.data.Dataset.range(3))",
        },
        keywords=frozenset(),
        profiles="dlpack array-api",
        distribution="tensorflow-cpu",
    ),
    Target(
        name="warp",
        imports="import warp as wp",
        make="lambda a: wp.array(a, dtype=wp.dtype_from_numpy(a.dtype))",
        take="wp.from_dlpack",
        show="lambda x: x.numpy().copy()",
        address="lambda x: x.ptr",
        type="wp.array",
        tensors={
            "strided": "wp.array(np.arange(1, 13, dtype=np.float32))[::2]",
            "transposed": "wp.array(np.arange(1, 7, dtype=np.float32)"
            ".reshape(2, 3)).transpose()",
        },
        setup="wp.config.quiet = True; wp.init()",
        view="lambda x: x[1:]",
        keywords=frozenset(),
        profiles="dlpack",
        distribution="warp-lang",
    ),
    Target(
        name="onnxruntime",
        imports="import onnxruntime as ort",
        make="ort.OrtValue.ortvalue_from_numpy",
        take="ort.OrtValue.from_dlpack",
        show="lambda x: x.numpy().copy()",
        address="lambda x: x.data_ptr()",
        type="ort.OrtValue",
        cannot_export={"strings": "ort.OrtValue.ortvalue_from_numpy(np.array(['a']))"},
        keywords=frozenset(),
        profiles="dlpack",
    ),
    Target(
        name="awkward",
        imports="import awkward as ak",
        take="ak.from_dlpack",
        show="lambda x: np.array(ak.to_numpy(x))",
        address="lambda x: ak.to_numpy(x).ctypes.data",
        writable="lambda x: ak.to_numpy(x).flags.writeable",
        view="lambda x: x[1:]",
        keywords=frozenset(),
        profiles="dlpack",
    ),
    Target(
        name="nanoarrow",
        imports="import nanoarrow as na",
        make="lambda a: na.Array(a).buffer(1)",
        take="na._buffer.CBuffer.from_dlpack",
        show="lambda x: np.array(x)",
        address="lambda x: np.asarray(x).ctypes.data",
        type="na._buffer.CBufferView",
        tensors={"read-only": "na.Array(np.ones(6, np.float32)).buffer(1)"},
        cannot_export={
            "bools": "na.Array([True], na.bool_()).buffer(1)",
        },
        keywords=frozenset(),
        dimensions=1,
        profiles="dlpack",
    ),
)
"""The shipped targets."""

ABSENT = {
    "arro3": "it has no `__dlpack__`, and imports Arrow's capsules and buffers",
    "cupy": "its tensors are on a GPU, and the suite checks tensors on the CPU",
    "dask": "its arrays have no `__dlpack__`",
    "ndonnx": "its `__dlpack__` and `from_dlpack` always raise BufferError",
    "numba": "its arrays on the CPU are NumPy's",
    "pandas": "it has no `__dlpack__`",
    "polars": "it has no `__dlpack__`",
    "tinygrad": "its tensors have no `__dlpack__`",
    "xarray": "it has no `__dlpack__`",
}
"""Libraries that one may ask for, and why there is nothing to check."""


def load(name: str) -> Target:
    """Return the target `package.module:factory`, or one that is shipped.

    That has the name of a module, or of a distribution with it.
    """
    if ":" in name:
        module, _, factory = name.partition(":")
        sys.path.insert(0, "")
        try:
            made = getattr(importlib.import_module(module), factory)()
        except Exception as error:
            # From Python 3.13 on, its message goes on.
            field = re.search(r"Target\..* keyword argument '(\w+)'$", str(error))
            names = [each.name for each in fields(Target)]
            near = meant(field[1], names) if field else ""
            raise CannotCheck(f"{name}: {described(error)}{near}") from error
        if not isinstance(made, Target):
            raise CannotCheck(f"{name}: returns {type(made).__name__}, not a Target")
        if fault := wrong(made):
            raise CannotCheck(f"{name}: Target({fault}")
        return made
    for each in (name, *_modules(name)):
        if each in ABSENT:
            raise CannotCheck(f"{name} cannot be checked: {ABSENT[each]}")
        for target in TARGETS:
            if each in (target.name, _normal(target.distribution or target.name)):
                return target
    known = ", ".join(target.name for target in TARGETS)
    raise CannotCheck(
        f"no target {name!r}; known are {known}; your own is `package.module:factory`"
    )


def _normal(distribution: str) -> str:
    """Return the name of a distribution as pip compares it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _modules(name: str) -> Iterator[str]:
    """Give the other names of a library that has this one on PyPI."""
    yield _normal(name)
    # Builds for a device have distributions of their own, with the same module.
    with contextlib.suppress(Exception):
        for file in metadata.files(name) or ():
            yield file.parts[0]
