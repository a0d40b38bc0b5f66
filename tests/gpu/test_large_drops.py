"""Drops of tensors of 2 GiB that a stream has yet to use.

A gate keeps the stream S from its end, so what waits for S on the host waits until the
gate is opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import dlx
import pytest

from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.released import LONGEST_S, settle
from gpu.report import found

GIB = 1 << 30
SOON_S = 0.2
"""Seconds within which a call that waits for nothing returns."""
OPENED_S = 0.5
"""Seconds until the gate is opened, for calls that wait."""


@pytest.fixture
def memory(gpu: Machine, torch: ModuleType) -> Iterator[Callable[[], int]]:
    """Return what counts the bytes that torch has not got back since the start."""
    settle(gpu)
    begin = torch.cuda.memory_allocated()
    yield lambda: int(torch.cuda.memory_allocated() - begin)
    settle(gpu)
    torch.cuda.empty_cache()


def imported(gpu: Machine, torch: ModuleType, nbytes: int) -> dlx.Tensor:
    """Return a tensor for S, which alone holds memory of torch."""
    x = torch.empty(nbytes, dtype=torch.uint8, device="cuda:0")
    return dlx.from_dlpack(x, stream=gpu.s.handle)


def drop(tensors: list[dlx.Tensor]) -> float:
    """Drop the first of the tensors, and return how many seconds that took."""
    begin = time.perf_counter()
    del tensors[0]
    return time.perf_counter() - begin


def test_a_drop_of_2_gib_does_not_wait(
    gpu: Machine, torch: ModuleType, memory: Callable[[], int]
) -> None:
    """Rule 6: the one that came last may have any size."""
    tensors = [imported(gpu, torch, 2 * GIB)]
    with gpu.gate.closed(gpu.s):
        seconds = drop(tensors)
        assert not gpu.s.is_done()
        held = memory()
    settle(gpu)
    found(f"a drop of 2 GiB takes {seconds * 1e6:.0f} us")
    assert seconds < SOON_S
    assert held == 2 * GIB, "the memory was given back while a stream may use it"
    assert memory() == 0, "the memory was not given back after the stream's end"


def test_20_gib_come_back_with_no_further_call(
    gpu: Machine, torch: ModuleType, memory: Callable[[], int]
) -> None:
    """Rule 6: while the program works on the library's own stream alone."""
    tensors = [imported(gpu, torch, 20 * GIB)]
    with gpu.gate.closed(gpu.s):
        drop(tensors)
        held = memory()
    gpu.synchronize()
    begin = time.perf_counter()
    while memory() and time.perf_counter() - begin < LONGEST_S:
        torch.zeros(1, device="cuda:0")
    found(f"20 GiB come back in {time.perf_counter() - begin:.3f} s")
    assert held == 20 * GIB
    assert memory() == 0


def handed_out(gpu: Machine, torch: ModuleType, release: Any) -> bool:
    """Drop 2 GiB that S has yet to read; whether torch hands that out meanwhile."""
    both = sorted(
        (torch.empty(2 * GIB, dtype=torch.uint8, device="cuda:0") for _ in range(2)),
        key=lambda x: int(x.data_ptr()),
        reverse=True,
    )
    both[0][: 4 * COUNT].view(torch.float32).fill_(OLD)  # loads the kernel
    # torch takes the lowest address of equal blocks: the dropped one before the spare.
    x, spare = both.pop(), both[0].data_ptr()
    first = x.data_ptr()
    gpu.fill(first, OLD, gpu.s)
    gpu.s.synchronize()
    both.clear()
    with gpu.gate.closed(gpu.s):
        tensor = dlx.from_dlpack(x, stream=gpu.s.handle, release=release)
        read = gpu.read(tensor.data_ptr, gpu.s)
        del x, tensor
        again = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda:0")
        place = again.data_ptr()
        again[: 4 * COUNT].view(torch.float32).fill_(NEW)
        torch.cuda.current_stream().synchronize()
        assert not gpu.s.is_done()
    assert place in (first, spare)
    assert (one_value(read) == NEW) == (place == first)
    return bool(place == first)


def test_2_gib_that_a_stream_has_yet_to_read_are_not_handed_out(
    gpu: Machine, torch: ModuleType, memory: Callable[[], int]
) -> None:
    """H4: torch takes another block."""
    assert not handed_out(gpu, torch, "auto")


def test_without_order_2_gib_are_handed_out(
    gpu: Machine, torch: ModuleType, memory: Callable[[], int]
) -> None:
    """H4: the control."""
    assert handed_out(gpu, torch, "none")


def tenth(torch: ModuleType) -> int:
    """Return a tenth of the device's memory, in blocks of 2 MiB."""
    total = torch.cuda.get_device_properties(0).total_memory
    return int(total) // 10 >> 21 << 21


def test_drops_of_a_tenth_of_the_memory_before_the_last_do_not_wait(
    gpu: Machine, torch: ModuleType, memory: Callable[[], int]
) -> None:
    """Rule 6: the list holds that, and the tensor that came last."""
    sizes = [tenth(torch) // 4 >> 21 << 21] * 4 + [2 * GIB]
    tensors = [imported(gpu, torch, nbytes) for nbytes in sizes]
    with gpu.gate.closed(gpu.s):
        seconds = sum([drop(tensors) for _ in sizes])
        assert not gpu.s.is_done()
        held = memory()
    settle(gpu)
    assert seconds < SOON_S
    assert held == sum(sizes)
    assert memory() == 0


@pytest.mark.parametrize("more", [2 * GIB, 2 << 20])
def test_the_next_drop_waits_for_the_oldest(
    gpu: Machine, torch: ModuleType, memory: Callable[[], int], more: int
) -> None:
    """Rule 6: beyond a tenth without the last, dlx waits, and gives the oldest back."""
    first, second = tenth(torch) + more, GIB // 4
    tensors = [imported(gpu, torch, nbytes) for nbytes in (first, second)]
    with gpu.gate.closed(gpu.s), gpu.gate.opened_after(OPENED_S):
        without_a_wait = drop(tensors)
        waited = drop(tensors)
        left = memory()
    settle(gpu)
    assert without_a_wait < SOON_S
    assert waited > OPENED_S / 2, "the list has more than a tenth, and nothing waited"
    assert left <= second, "the oldest was waited for, and not given back"
    assert memory() == 0


def test_memory_of_dlx_is_freed_in_order(
    gpu: Machine, torch: ModuleType, memory: Callable[[], int]
) -> None:
    """H4: 2 GiB of `dlx.empty` are dropped before a kernel on their stream reads."""
    with dlx.stream(gpu.s):
        tensors = [dlx.empty((2 * GIB,), "uint8", device="cuda:0")]
    gpu.fill(tensors[0].data_ptr, OLD, gpu.s)
    gpu.synchronize()
    with gpu.gate.closed(gpu.s), gpu.gate.opened_after(OPENED_S):
        read = gpu.read(tensors[0].data_ptr, gpu.s)
        seconds = drop(tensors)
        # The driver may wait for S, on the host or on X, before it hands the memory on.
        with dlx.stream(gpu.x):
            other = dlx.empty((2 * GIB,), "uint8", device="cuda:0")
        gpu.fill(other.data_ptr, NEW, gpu.x)
        gpu.x.settles(OPENED_S / 4)
    assert seconds < SOON_S
    assert one_value(read) == OLD
