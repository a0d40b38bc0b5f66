"""NumPy's arrays, and objects of libraries that are made from them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from interop.cases import elements, ones_and_twos
from interop.making import frozen, late, own

from .objects import Object, Objects, made, of_dtypes, sent, viewed


def warning_on_write() -> Any:
    """Return an array that is writable, but warns before the first write."""
    return np.broadcast_arrays(elements()[0], elements())[0]


def masked() -> Any:
    """Return an array with elements that do not count."""
    return np.ma.masked_array(elements(), mask=elements() > 5)


def plain() -> Objects:
    """Yield arrays whose dtypes DLPack has."""
    yield from sent("numpy")
    yield from of_dtypes("int2 int4 uint2 uint4", ones_and_twos)
    yield from viewed(own)
    yield from made(
        zero_strides=lambda: np.lib.stride_tricks.as_strided(
            elements(), (4, 6), (0, 4)
        ),
        read_only_0_d=lambda: frozen(elements()[1, 2, ...]),
        read_only_empty=lambda: frozen(elements()[:0]),
        memmap=lambda: np.memmap("/proc/self/exe", "f4", "r", shape=(4, 6)),
        warn_on_write=warning_on_write,
        byte_swapped=lambda: elements().astype(">f4"),
    )


def numpys() -> Objects:
    """Yield arrays, among them some that DLPack cannot describe."""
    yield from plain()
    yield from made(
        longdouble=lambda: np.zeros(3, np.longdouble),
        clongdouble=lambda: np.zeros(3, np.clongdouble),
        datetime=lambda: np.zeros(3, "M8[s]"),
        string=lambda: np.array(["a", "b"]),
        object=lambda: np.array([None, 1]),
        field=lambda: np.zeros(3, [("a", "f4"), ("b", "f8")])["a"],
        aligned_field=lambda: np.zeros(3, [("a", "f4"), ("b", "f4")])["a"],
        scalar=lambda: np.float32(3),
        masked=masked,
        masked_nowhere=lambda: np.ma.masked_array(elements(), mask=False),
        matrix=lambda: elements().view(type("Derived", (np.ndarray,), {})),
    )


def tvm_ffi() -> Objects:
    """Yield tvm-ffi's tensors over the memory of others."""
    from_dlpack = late("tvm_ffi").from_dlpack
    yield from sent("apache-tvm-ffi")
    yield from made(
        from_torch=lambda: from_dlpack(torch_elements()),
        last=lambda: from_dlpack(elements()[3:, 5:]),
    )


def torch_elements() -> Any:
    """Return the elements as a torch tensor."""
    return late("torch").from_numpy(elements())


def cuda_core() -> Objects:
    """Yield `cuda.core`'s views of arrays that NumPy itself exports."""
    yield from sent("cuda-core")
    view = late("cuda.core.utils").StridedMemoryView
    for name, make in plain():
        if name in ("zero-strides", "read-only-0-d", "read-only-empty", "memmap"):
            yield Object(
                name,
                partial(lambda make: view.from_dlpack(make(), stream_ptr=-1), make),
            )
    yield from made(
        from_torch=lambda: view.from_dlpack(torch_elements(), stream_ptr=-1)
    )


def onnxruntime() -> Objects:
    """Yield ONNX Runtime's values, which refer to arrays."""
    value = late("onnxruntime").OrtValue.ortvalue_from_numpy
    yield from sent("onnxruntime")
    yield from of_dtypes("bool", lambda name: value(ones_and_twos(name)))
    yield from made(
        strided=lambda: value(elements()[::2, 1::2]),
        read_only=lambda: value(frozen(elements())),
    )


def array_api_strict() -> Objects:
    """Yield arrays of the array API's reference, which hold NumPy's."""
    yield from sent("array-api-strict")
    yield from made(offset=lambda: late("array_api_strict").asarray(elements())[0, 1:])


def warp() -> Objects:
    """Yield Warp's arrays, also of vectors and matrices."""
    wp = late("warp")
    wp.config.quiet = True
    wp.init()

    def array(x: Any, **keywords: Any) -> Any:
        return wp.array(x, dtype=wp.float32, device="cpu", **keywords)

    yield from sent("warp-lang")
    yield from of_dtypes(
        "vec2h vec3f mat22 quatf transformf",
        lambda name: wp.zeros((4, 6), dtype=getattr(wp, name), device="cpu"),
    )
    yield from made(
        last=lambda: array(elements())[3:, 5:],
        gradient=lambda: array(elements(), requires_grad=True),
        indexed=lambda: array(elements())[wp.array([0, 2], dtype=wp.int32)],
    )
