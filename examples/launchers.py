"""One kernel, launched in four ways, each of which takes tensors of any library.

`dlx.launcher` refuses what the kernel could not read, and orders the streams.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dlx

SOURCE = r"""
#ifdef __CUDACC__
#define EACH(i, n) \
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)
extern "C" __global__
#else
#define EACH(i, n) for (long long i = 0; i < n; ++i)
#endif
void saxpy(float a, const float *x, const float *y, float *out, long long n) {
    EACH(i, n) { out[i] = a * x[i] + y[i]; }
}
"""


@cache
def by_ctypes() -> Callable[..., None]:
    """Compile C; a function of ctypes has no signature, so positions name tensors."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "saxpy.c", Path(folder) / "saxpy.so"
        source.write_text(SOURCE)
        command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC"]
        subprocess.run([*command, source, "-o", library], check=True)
        saxpy = ctypes.CDLL(str(library)).saxpy  # stays loaded without the file
    pointers = [ctypes.c_void_p] * 3
    saxpy.argtypes = [ctypes.c_float, *pointers, ctypes.c_longlong]
    saxpy.restype = None
    launch: Callable[..., None] = dlx.launcher(saxpy, out=3, dtype="float32")
    return launch


@cache
def by_numba() -> Callable[..., None]:
    """Compile by Numba for the CPU, for arrays of any strides."""
    numba: Any = import_module("numba")

    def body(a: Any, x: Any, y: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = a * x[i] + y[i]

    kernel = numba.njit(body)

    @dlx.launcher(give="tensor", out="out", dtype="float32", contiguous=False)
    def saxpy(a: float, x: dlx.Tensor, y: dlx.Tensor, out: dlx.Tensor, n: int) -> None:
        kernel(a, *(t.numpy() for t in (x, y, out)))

    return saxpy


@cache
def by_cuda_core() -> Callable[..., None]:
    """Compile by NVRTC; cuda.core takes an int as eight bytes."""
    import cuda.core as cuda
    import numpy as np

    device = cuda.Device()
    device.set_current()
    options = cuda.ProgramOptions(arch=f"sm_{device.arch}")
    kernel = cuda.Program(SOURCE, "c++", options).compile("cubin").get_kernel("saxpy")

    @dlx.launcher(out="out", dtype="float32")
    def saxpy(a: float, x: int, y: int, out: int, n: int, *, stream: int) -> None:
        blocks = cuda.LaunchConfig(grid=-(-n // 256), block=256)
        arguments = np.float32(a), x, y, out, n
        cuda.launch(cuda.Stream.from_handle(stream), blocks, kernel, *arguments)

    return saxpy


@cache
def by_cupy() -> Callable[..., None]:
    """Compile by CuPy, whose kernels run on its current stream."""
    cupy: Any = import_module("cupy")
    import numpy as np

    kernel = cupy.RawKernel(SOURCE, "saxpy")

    @dlx.launcher(
        out="out", dtype="float32", stream=lambda: cupy.cuda.get_current_stream()
    )
    def saxpy(a: float, x: int, y: int, out: int, n: int) -> None:
        kernel((-(-n // 256),), (256,), (np.float32(a), x, y, out, np.int64(n)))

    return saxpy


def has_gpu() -> bool:
    """Whether torch finds one."""
    if not find_spec("torch"):
        return False
    import torch

    return bool(torch.cuda.is_available())


WAYS: dict[str, tuple[Callable[[], Any], Callable[[], bool]]] = {
    "ctypes": (by_ctypes, lambda: True),
    "Numba": (by_numba, lambda: find_spec("numba") is not None),
    "cuda.core": (by_cuda_core, lambda: has_gpu() and find_spec("cuda") is not None),
    "CuPy": (by_cupy, lambda: has_gpu() and find_spec("cupy") is not None),
}


def main() -> None:
    """Launch in each way that is here, and follow the advice of a refusal."""
    import numpy as np

    for name, (way, is_here) in WAYS.items():
        if not is_here():
            print(f"{name}: its library or a GPU is not here")
            continue
        x, y = np.arange(6, dtype="f4"), np.ones(6)
        if way in (by_cuda_core, by_cupy):
            import torch

            x, y = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
        saxpy, out = way(), dlx.empty(6, "float32", like=x)
        try:
            saxpy(2.0, x, y, out, 6)
        except BufferError as refused:
            print(f"{name}: refused:", *getattr(refused, "__notes__", ()), refused)
        saxpy(2.0, x, dlx.convert(y, x, dtype="float32"), out, 6)
        print(f"{name}: {dlx.from_dlpack(out, device='cpu').tolist()}")


if __name__ == "__main__":
    main()
