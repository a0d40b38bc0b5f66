"""The stream that a library works on, as its table says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_void_p
from types import ModuleType
from typing import Any

import dlx
import pytest
from support.dlpack_abi import table_of

from gpu.machine import Machine

CUDA = (2, 0)


def stream_of(owner: Any) -> int:
    """Return the answer of a table's `current_work_stream`; NULL is 0."""
    out = c_void_p()
    assert table_of(owner).current_work_stream(*CUDA, byref(out)) == 0
    return out.value or 0


def test_the_table_of_torch_follows_its_current_stream(
    gpu: Machine, torch: ModuleType
) -> None:
    """R140: inside `torch.cuda.stream`, nested, and after it."""
    outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
    said = [stream_of(torch.Tensor)]
    with torch.cuda.stream(outer):
        said.append(stream_of(torch.Tensor))
        with torch.cuda.stream(inner):
            said.append(stream_of(torch.Tensor))
        said.append(stream_of(torch.Tensor))
    handles = [outer.cuda_stream, inner.cuda_stream, outer.cuda_stream]
    assert said == [0, *handles]


def test_the_current_stream_of_torch_is_of_the_thread(
    gpu: Machine, torch: ModuleType
) -> None:
    """R140, H8: another thread works on another stream."""
    with ThreadPoolExecutor(1) as thread, torch.cuda.stream(torch.cuda.Stream()):
        assert thread.submit(stream_of, torch.Tensor).result() == 0


def test_a_block_runs_on_the_current_stream_of_torch(
    gpu: Machine, torch: ModuleType
) -> None:
    """R143: the stream of `borrow` if the caller names none."""
    x, stream = torch.zeros(8, device="cuda:0"), torch.cuda.Stream()
    with dlx.borrow(x) as (_, default):
        assert default == 1
    with torch.cuda.stream(stream), dlx.borrow(x) as (_, named):
        assert named == stream.cuda_stream


def test_the_table_of_dlx_relays_the_only_library(
    gpu: Machine, torch: ModuleType
) -> None:
    """R139: in a thread that has imported tensors of torch alone."""
    x, stream = torch.zeros(8, device="cuda:0"), torch.cuda.Stream()

    def ask() -> tuple[int, int]:
        with torch.cuda.stream(stream):
            dlx.from_dlpack(x, stream=stream)
            return stream_of(dlx.Tensor), dlx.current_stream("cuda:0").handle

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(ask).result() == (stream.cuda_stream,) * 2


def test_what_is_set_comes_before_the_library(gpu: Machine, torch: ModuleType) -> None:
    """R140: `with dlx.stream(s)`."""
    dlx.from_dlpack(torch.zeros(8, device="cuda:0"), stream=1)
    with dlx.stream(gpu.s) as current:
        assert (stream_of(dlx.Tensor), current.handle) == (gpu.s.handle,) * 2
    assert stream_of(dlx.Tensor) != gpu.s.handle


def test_the_device_of_a_stream_is_found(gpu: Machine, torch: ModuleType) -> None:
    """R86: by the driver, for a handle."""
    assert dlx.Stream(gpu.s.handle).device == "cuda:0"


def test_a_stream_of_another_device_is_refused(gpu: Machine, torch: ModuleType) -> None:
    """R86, H7: an import on cuda:0 does not take a stream of cuda:1."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    there = torch.cuda.Stream(device=1)
    x = torch.zeros(8, device="cuda:0")
    with pytest.raises(ValueError, match="cuda:1"):
        dlx.from_dlpack(x, stream=there.cuda_stream)
