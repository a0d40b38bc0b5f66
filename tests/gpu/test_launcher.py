"""`dlx.launcher`: kernels of four libraries over tensors of any, ordered both ways."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest

from gpu import hazards
from gpu.clients import Client, client_of
from gpu.compilers import need_triton
from gpu.kernels import PTX
from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.report import found

LIBRARIES = ["torch", "cupy"]
PAIRS = [("torch", "torch"), ("torch", "cupy"), ("cupy", "torch"), ("numba", "torch")]

C = r"""
extern "C" __global__ void doubled(const float *x, float *out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
"""


def numbers(array: Any) -> Any:
    """Return the elements on the host."""
    return dlx.from_dlpack(array, device="cpu").numpy()


def pair(names: tuple[str, str]) -> tuple[Any, Any]:
    """Return an array of each of two libraries, with another value."""
    one, other = map(client_of, names)
    return one.full(OLD), other.full(NEW)


# Kernels.


@pytest.mark.parametrize("names", PAIRS)
def test_a_raw_kernel_of_cupy_takes_addresses(
    gpu: Machine, names: tuple[str, str]
) -> None:
    """docs/launcher.md, `give`: CuPy passes an int as eight bytes."""
    cupy = client_of("cupy").library
    kernel = cupy.RawKernel(C, "doubled")

    @dlx.launcher(out="out", dtype="float32")
    def doubled(x: int, out: int, n: int, *, stream: int) -> None:
        with cupy.cuda.Stream.from_external(dlx.Stream(stream)):
            kernel((-(-n // 256),), (256,), (x, out, np.int64(n)))

    x, out = pair(names)
    doubled(x, out, COUNT)
    assert (numbers(out) == 2 * OLD).all()


@pytest.mark.parametrize("names", PAIRS)
def test_cuda_core_takes_addresses(gpu: Machine, names: tuple[str, str]) -> None:
    """docs/launcher.md, `give`: an int is an argument of eight bytes."""
    cuda = client_of("cuda.core").library
    kernel = cuda.ObjectCode.from_ptx(PTX.encode()).get_kernel("copy")
    blocks = cuda.LaunchConfig(grid=1, block=256)

    @dlx.launcher(out="out", dtype="float32")
    def copied(x: int, out: int, n: int, *, stream: int) -> None:
        cuda.launch(cuda.Stream.from_handle(stream), blocks, kernel, out, x, n)

    x, out = pair(names)
    copied(x, out, COUNT)
    assert (numbers(out) == OLD).all()


@pytest.mark.parametrize("names", PAIRS)
def test_a_kernel_of_numba_takes_tensors(gpu: Machine, names: tuple[str, str]) -> None:
    """docs/launcher.md, `give`: Numba reads `__cuda_array_interface__`."""
    cuda = client_of("numba").library

    def body(x: Any, out: Any) -> None:
        index = cuda.grid(1)
        if index < x.size:
            out[index] = 2 * x[index]

    kernel = cuda.jit(body)

    @dlx.launcher(give="tensor", out="out", contiguous=False)
    def doubled(x: dlx.Tensor, out: dlx.Tensor, *, stream: int) -> None:
        kernel[-(-x.size // 256), 256, cuda.external_stream(stream)](x, out)

    x, out = pair(names)
    doubled(x, out)
    assert (numbers(out) == 2 * OLD).all()


def triton_kernel() -> Any:
    """Return the kernel, or skip the test where Triton cannot compile."""
    need_triton()
    return import_module("gpu.triton_kernels").doubled


@pytest.mark.parametrize("names", PAIRS)
def test_a_kernel_of_triton_takes_pointers(
    gpu: Machine, torch: ModuleType, names: tuple[str, str]
) -> None:
    """docs/launcher.md, `give`: Triton launches on torch's current stream."""
    launch: Any = triton_kernel()[(-(-COUNT // 256),)]
    current: Any = torch.cuda.current_stream
    doubled: Any = dlx.launcher(launch, give="pointer", out=1, stream=current)
    x, out = pair(names)
    doubled(x, out, COUNT, BLOCK=256)
    assert (numbers(out) == 2 * OLD).all()


def test_triton_takes_a_single_pointer(gpu: Machine, torch: ModuleType) -> None:
    """docs/launcher.md, A single pointer."""
    kernel = triton_kernel()
    x, out = torch.full((COUNT,), OLD, device="cuda"), torch.empty(COUNT, device="cuda")
    stream: Any = torch.cuda.current_stream()
    pointers = dlx.as_pointer(x, stream), dlx.as_pointer(out, stream)
    grid = (-(-COUNT // 256),)
    kernel[grid](*pointers, COUNT, BLOCK=256)
    assert (numbers(out) == 2 * OLD).all()


# Streams.


@dlx.launcher
def read(array: int, gpu: Machine, *, stream: int) -> Any:
    """Queue a kernel that reads."""
    return gpu.read(array, stream)


@dlx.launcher(stream=-1)
def read_unordered(array: int, gpu: Machine, handle: int) -> Any:
    """Queue a kernel that reads, on a stream that is ordered with none."""
    return gpu.read(array, handle)


def mutate(gpu: Machine, client: Client, *, is_ordered: bool) -> bool:
    """H1: the producer writes, on P, to what a kernel on S has yet to read."""
    array = client.full(OLD)
    gpu.p.synchronize()
    with gpu.gate.closed(gpu.s):
        if is_ordered:
            seen = read(array, gpu, stream=gpu.s)
        else:
            seen = read_unordered(array, gpu, gpu.s.handle)
        client.write(array, NEW)
        gpu.p.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    return one_value(seen) != OLD


def struck(gpu: Machine, library: str, *, is_ordered: bool) -> int:
    """Return in how many rounds the hazard strikes."""
    client = client_of(library)
    with client.stream(gpu.p):
        # What loads something when it is first used does so here, not behind the gate.
        client.write(client.full(OLD), OLD)
        gpu.synchronize()
        mutate(gpu, client, is_ordered=False)
        rounds = range(hazards.ROUNDS)
        strikes = sum(mutate(gpu, client, is_ordered=is_ordered) for _ in rounds)
    found(f"launcher {library} {is_ordered=}: strikes in {strikes} of {len(rounds)}")
    return strikes


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_order_a_launch_is_overtaken(gpu: Machine, library: str) -> None:
    """H1: the control."""
    assert struck(gpu, library, is_ordered=False) > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_launch_on_another_stream_is_not_overtaken(
    gpu: Machine, library: str
) -> None:
    """H1: the library's stream waits for the launch."""
    assert struck(gpu, library, is_ordered=True) == 0


@pytest.mark.parametrize("names", [("torch", "cupy"), ("cupy", "torch")])
def test_a_launch_comes_between_the_work_of_two_libraries(
    gpu: Machine, names: tuple[str, str]
) -> None:
    """H2: after what each did, on the stream of the first, before what each does."""
    one, other = map(client_of, names)

    @dlx.launcher
    def both(a: int, b: int, *, stream: int) -> Any:
        assert stream == gpu.x.handle
        return gpu.read(a, stream), gpu.read(b, stream)

    with one.stream(gpu.x), other.stream(gpu.y):
        a, b = one.full(OLD), other.full(OLD)
        both(a, b)
        gpu.synchronize()
        for _ in range(hazards.ROUNDS):
            other.write(b, OLD)
            gpu.synchronize()
            with gpu.gate.closed(gpu.y):
                other.write(b, NEW)
                reads = both(a, b)
                other.write(b, OLD)
                gpu.y.settles()
                gpu.gate.open()
                gpu.x.synchronize()
            assert [one_value(elements) for elements in reads] == [OLD, NEW]


def test_the_stream_is_that_of_the_first_tensor(gpu: Machine) -> None:
    """docs/launcher.md, Streams: as an int."""
    given = dlx.launcher(lambda x, stream: stream)
    for name in LIBRARIES:
        client = client_of(name)
        with client.stream(gpu.p):
            assert given(client.full(OLD)) == gpu.p.handle


def test_a_launch_that_raises_is_waited_for(gpu: Machine, torch: ModuleType) -> None:
    """H1: what was queued before the exception runs all the same."""
    client = client_of("torch")
    reads = []

    @dlx.launcher
    def fails(array: int, *, stream: int) -> None:
        reads.append(gpu.read(array, stream))
        raise KeyError(3)

    with client.stream(gpu.p):
        array = client.full(OLD)
        gpu.p.synchronize()
        with gpu.gate.closed(gpu.s):
            with pytest.raises(KeyError):
                fails(array, stream=gpu.s)
            client.write(array, NEW)
            gpu.p.settles()
            gpu.gate.open()
            gpu.s.synchronize()
    assert one_value(reads[0]) == OLD


def test_a_launch_is_captured_with_the_work_of_torch(
    gpu: Machine, torch: ModuleType
) -> None:
    """docs/streams.md: where all agree nothing is ordered."""

    @dlx.launcher(out="out")
    def copied(x: int, out: int, *, stream: int) -> None:
        gpu.copy(out, x, stream)

    x, out = torch.full((COUNT,), OLD, device="cuda"), torch.zeros(COUNT, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        x.add_(1)
        copied(x, out)
    torch.cuda.synchronize()
    assert (numbers(out) == 0).all()
    graph.replay()
    torch.cuda.synchronize()
    assert (numbers(out) == OLD + 1).all()


def test_a_launch_on_a_stream_that_nothing_names_is_refused(
    gpu: Machine, torch: ModuleType
) -> None:
    """docs/launcher.md, Refused: it would be ordered with none."""
    launched = dlx.launcher(lambda x: x)
    x = torch.zeros(COUNT, device="cuda")
    with pytest.raises(BufferError, match="nothing says which stream"):
        launched(x)


def test_torch_learns_that_an_output_was_written(
    gpu: Machine, torch: ModuleType
) -> None:
    """docs/launcher.md, `out`: a graph that has saved it raises."""
    launched = dlx.launcher(lambda x, out, stream: (x, out), out="out")
    x, out = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")
    before = x._version, out._version
    assert launched(x, out) == (x.data_ptr(), out.data_ptr())
    assert (x._version, out._version) == (before[0], before[1] + 1)
