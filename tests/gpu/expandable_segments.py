"""What torch's expandable segments must not change; a process of its own runs this.

Such memory is mapped by `cuMemMap`, page by page, and not allocated by `cuMemAlloc`.
`CHECKS` has each behaviour by its name.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

import dlx
import numpy as np

from gpu.machine import COUNT, NEW, OLD, Machine, machine, one_value

CHECKS: dict[str, Callable[[Machine, Any], None]] = {}


class Shown:
    """A tensor of torch with nothing but `__cuda_array_interface__`."""

    def __init__(self, x: Any) -> None:
        """Keep the tensor."""
        self._x = x

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the interface of the tensor, which names no device."""
        interface: dict[str, Any] = self._x.__cuda_array_interface__
        return interface


def check(function: Callable[[Machine, Any], None]) -> Callable[[Machine, Any], None]:
    """Add a function to `CHECKS`."""
    CHECKS[function.__name__] = function
    return function


@check
def the_segments_are_expandable(gpu: Machine, torch: Any) -> None:
    """The control: torch has the option, and uses it."""
    x = torch.ones(COUNT, device="cuda:0")
    segments = torch.cuda.memory_snapshot()
    assert [each["is_expandable"] for each in segments] == [True] * len(segments)
    assert any(
        each["address"] <= x.data_ptr() < each["address"] + each["total_size"]
        for each in segments
    )


@check
def an_import_shares_the_memory(gpu: Machine, torch: Any) -> None:
    """R73, R76: with and without a stream, and back."""
    x = torch.arange(12.0, device="cuda:0").reshape(3, 4)
    for keywords in ({}, {"stream": gpu.s}, {"stream": -1}):
        tensor = dlx.from_dlpack(x, **keywords)
        assert tensor.data_ptr == x.data_ptr()
        assert tensor.device == "cuda:0"
        back = torch.from_dlpack(tensor)
        assert back.data_ptr() == x.data_ptr()
        assert torch.equal(back, x)


@check
def a_stream_waits_for_what_torch_was_given(gpu: Machine, torch: Any) -> None:
    """R80: a read on S sees a write that is queued on P behind a gate."""
    with torch.cuda.stream(torch.cuda.ExternalStream(gpu.p.handle, device=0)):
        x = torch.full((COUNT,), OLD, device="cuda:0")
        dlx.from_dlpack(x, stream=gpu.s)
        gpu.synchronize()
        for stream, value in ((gpu.s, NEW), (-1, OLD)):
            x.fill_(OLD)
            gpu.synchronize()
            with gpu.gate.closed(gpu.p):
                x.fill_(NEW)
                tensor = dlx.from_dlpack(x, stream=stream)
                read = gpu.read(tensor.data_ptr, gpu.s)
                waits = not gpu.s.settles()
                gpu.gate.open()
                gpu.s.synchronize()
            assert (one_value(read), waits) == (value, value == NEW)


@check
def memory_that_a_stream_reads_is_not_handed_out(gpu: Machine, torch: Any) -> None:
    """H4: a dropped tensor that S has yet to read; the control is `release="none"`."""
    for release, expected in (("auto", OLD), ("none", NEW)):
        # Larger than what torch takes from a shared segment of small blocks.
        x = torch.full((1 << 22,), OLD, device="cuda:0")
        spare = [torch.full_like(x, OLD) for _ in range(2)]
        gpu.synchronize()
        del spare
        with gpu.gate.closed(gpu.s):
            keywords: Any = {"stream": gpu.s.handle, "release": release}
            tensor = dlx.from_dlpack(x, **keywords)
            read = gpu.read(tensor.data_ptr, gpu.s)
            del x, tensor
            again = [torch.full((1 << 22,), NEW, device="cuda:0") for _ in range(2)]
            torch.cuda.current_stream().synchronize()
            gpu.gate.open()
            gpu.s.synchronize()
        del again
        assert one_value(read) == expected, release


@check
def copies_to_the_host_are_right(gpu: Machine, torch: Any) -> None:
    """R54, R55: of dlx itself, over many pages, whole and strided."""
    x = torch.arange(1 << 24, device="cuda:0", dtype=torch.int32).reshape(1 << 12, -1)
    for part in (x, x[5:-5], x[:, 7], x[3:, 5:900], x.T):
        copied = dlx.from_dlpack(part).to(device="cpu")
        np.testing.assert_array_equal(copied.numpy(), part.cpu().numpy())


@check
def copies_on_the_device_are_right(gpu: Machine, torch: Any) -> None:
    """R47, R59: of dlx itself, from such memory to that of `cuMemAllocAsync`."""
    x = torch.arange(1 << 24, device="cuda:0", dtype=torch.int32).reshape(1 << 12, -1)
    for part in (x, x[5:-5], x[:, 7], x[3:, 5:900], x.T):
        copied = dlx.from_dlpack(part).to(copy=True)
        assert copied.is_contiguous
        assert torch.equal(torch.from_dlpack(copied), part)


@check
def the_device_is_found_from_the_pointer(gpu: Machine, torch: Any) -> None:
    """R148: `__cuda_array_interface__` does not name it, so the driver is asked."""
    x = torch.arange(1 << 22, device="cuda:0", dtype=torch.int32)
    for part in (x, x[1:], x[-5:]):
        tensor = dlx.from_dlpack(Shown(part), stream=gpu.s)
        assert tensor.data_ptr == part.data_ptr()
        assert tensor.device == "cuda:0"
        assert torch.equal(torch.from_dlpack(tensor), part)


def main() -> None:
    """Run the checks, and print why each failed, as JSON in the last line."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    torch, failed = import_module("torch"), {}
    for name, function in CHECKS.items():
        try:
            function(machine(), torch)
        except Exception:
            failed[name] = traceback.format_exc()
        else:
            failed[name] = ""
    print(json.dumps(failed))
