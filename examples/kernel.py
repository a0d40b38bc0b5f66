"""A kernel of one's own for tensors of any library, on the CPU or, by NVRTC, on a GPU.

`dlx.borrow` refuses what the kernel could not read, and says what to do.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dlx

# What is assumed to be aligned may be read 16 bytes at a time, or crash.
SOURCE = r"""
#ifdef __CUDACC__
#define EACH(i, n) \
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)
extern "C" __global__
#else
#include <math.h>
#define EACH(i, n) for (long long i = 0; i < n; ++i)
#endif
void gated(const float *x_, const float *gate_, float *y_, long long n) {
    const float *x = (const float *)__builtin_assume_aligned(x_, 16);
    const float *gate = (const float *)__builtin_assume_aligned(gate_, 16);
    float *y = (float *)__builtin_assume_aligned(y_, 16);
    EACH(i, n) { y[i] = x[i] * gate[i] / (1.0f + expf(-gate[i])); }
}
"""


@cache
def host_kernel() -> Any:
    """Compile for the CPU, and load it."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "gated.c", Path(folder) / "gated.so"
        source.write_text(SOURCE)
        command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC"]
        subprocess.run([*command, source, "-lm", "-o", library], check=True)
        gated = ctypes.CDLL(str(library)).gated  # stays loaded without the file
    gated.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_longlong]
    gated.restype = None
    return gated


@cache
def compile_for_gpu(arch: str) -> Any:
    """Compile for GPUs of an architecture, such as ``sm_90``; this needs no GPU."""
    import cuda.core as cuda

    options = cuda.ProgramOptions(arch=arch)
    return cuda.Program(SOURCE, "c++", options).compile("cubin")


def launch(stream: dlx.Stream, *arguments: int, threads: int) -> None:
    """Queue the kernel on ``stream``, which cuda.core takes as it is."""
    import cuda.core as cuda

    device = cuda.Device(stream.device.id)
    device.set_current()
    kernel = compile_for_gpu(f"sm_{device.arch}").get_kernel("gated")
    blocks = cuda.LaunchConfig(grid=-(-threads // 256), block=256)
    cuda.launch(stream, blocks, kernel, *arguments)


def gated(x: Any, gate: Any, out: Any = None) -> Any:
    """Return ``x * silu(gate)`` in ``out``, or as a new array of ``x``'s library."""
    y = out
    if y is None:  # not like=x: memory that is already a JAX array is immutable
        model = dlx.from_dlpack(gate)
        y = dlx.empty(model.shape, "float32", device=model.device)
    accepted = dlx.borrow(x, gate, out=y, dtype="float32", contiguous=True, align=16)
    with accepted as (tx, tg, ty, stream):
        if len({(t.shape, t.device) for t in (tx, tg, ty)}) != 1:
            raise ValueError(f"{tx}, {tg} and {ty} differ in shape or device")
        arguments = tx.data_ptr, tg.data_ptr, ty.data_ptr, ty.size
        if stream is None:
            host_kernel()(*arguments)
        elif ty.size:
            launch(stream, *arguments, threads=ty.size)  # only queued: all streams wait
    return dlx.convert(y, x) if out is None else out


def attempt(x: Any, gate: Any, out: Any = None) -> None:
    """Print the result, or why the kernel did not run."""
    try:
        print(gated(x, gate, out))
    except BufferError as refused:
        print("refused:", *getattr(refused, "__notes__", ()), "-", refused)


def main() -> None:
    """Call the kernel, and follow the advice where it refuses."""
    if find_spec("numpy"):
        import numpy as np

        x, ones = np.arange(6, dtype="float32").reshape(2, 3), np.ones((2, 3))
        attempt(x, ones)
        attempt(x, dlx.convert(ones, np, dtype="float32"))
        attempt(x.T, x.T)
        rows = dlx.from_dlpack(x.T, copy=True)
        attempt(rows.numpy(), rows)  # tensors of two libraries
        attempt(x[0, 1:], x[1, :2])
    if find_spec("jax"):
        import jax

        j = jax.numpy.ones(4)
        attempt(j, j, out=j)
        attempt(j, j)  # a new array of JAX


if __name__ == "__main__":
    main()
