"""A kernel of CuTe DSL, which compiles the source of a module."""

# mypy: ignore-errors

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 128


@cute.kernel
def _add_one(x: cute.Tensor, out: cute.Tensor):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    at = block * THREADS + thread
    if at < x.shape[0]:
        out[at] = x[at] + 1.0


@cute.jit
def _launch(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    blocks = (x.shape[0] + THREADS - 1) // THREADS
    _add_one(x, out).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


def add_one():
    """Compile it as a function of tvm-ffi that asks for the environment's stream."""
    size = cute.sym_int()
    x, out = (make_fake_compact_tensor(cutlass.Float32, (size,)) for _ in range(2))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(_launch, x, out, stream, options="--enable-tvm-ffi")
