"""What the driver answers about memory beside captures, and between devices.

More claims in the manner of `claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, byref, c_int, c_uint64, create_string_buffer
from threading import Thread

from support.driver_structures import Copy2d

from gpu.claimed import (
    GLOBAL,
    RELAXED,
    THREAD_LOCAL,
    Codes,
    begin,
    claim,
    end,
)
from gpu.driver import Driver

MODES = {"global": GLOBAL, "thread local": THREAD_LOCAL, "relaxed": RELAXED}
NBYTES = 256
ORDINAL, CONTEXT = 9, 1

TWO_DEVICES = {"copies_between_devices_name_them"}
"""Claims that need a second GPU."""


def beside(
    cuda: Driver, call: Callable[[], int], modes: dict[str, int] = MODES
) -> Codes:
    """Make a call in another thread while a stream captures, in each mode."""
    codes = Codes()
    for name, mode in modes.items():
        stream = begin(cuda, mode)

        def other(name: str = name) -> None:
            cuda.use_primary_context()
            codes[name] = call()

        thread = Thread(target=other)
        thread.start()
        thread.join()
        codes[f"end {name}"] = end(cuda, stream)
    return codes


def relaxed(cuda: Driver, call: Callable[[], int]) -> Callable[[], int]:
    """Make a call in the relaxed mode, which dlx exchanges around its own."""

    def exchanged() -> int:
        mode = c_int(RELAXED)
        cuda.call("cuThreadExchangeStreamCaptureMode", byref(mode))
        code = call()
        cuda.call("cuThreadExchangeStreamCaptureMode", byref(mode))
        return code

    return exchanged


@claim
def another_thread_allocates(cuda: Driver) -> Codes:
    """`cuMemAlloc`: 900 beside a global capture, which is broken."""
    place = c_uint64()
    return beside(cuda, lambda: cuda.answer("cuMemAlloc_v2", byref(place), NBYTES))


@claim
def another_thread_allocates_pinned_memory(cuda: Driver) -> Codes:
    """The same for `cuMemHostAlloc` (pytorch/pytorch#175425)."""
    place = c_uint64()
    return beside(cuda, lambda: cuda.answer("cuMemHostAlloc", byref(place), NBYTES, 0))


@claim
def another_thread_frees(cuda: Driver) -> Codes:
    """The same for `cuMemFree` of memory that no graph knows."""
    memory = [cuda.get("cuMemAlloc_v2", NBYTES) for _ in MODES]
    return beside(cuda, lambda: cuda.answer("cuMemFree_v2", memory.pop()))


@claim
def another_thread_frees_in_the_relaxed_mode(cuda: Driver) -> Codes:
    """0, and no capture is broken."""
    memory = [cuda.get("cuMemAlloc_v2", NBYTES) for _ in MODES]
    call = relaxed(cuda, lambda: cuda.answer("cuMemFree_v2", memory.pop()))
    return beside(cuda, call)


def allocation(cuda: Driver) -> Callable[[], int]:
    """Allocate from the pool, on a stream that does not capture."""
    stream = cuda.new_stream()
    # The pool has room, so that it need not grow.
    cuda.call("cuMemFreeAsync", cuda.get("cuMemAllocAsync", NBYTES, stream), stream)
    place = c_uint64()
    return lambda: cuda.answer("cuMemAllocAsync", byref(place), NBYTES, stream)


def freeing(cuda: Driver) -> Callable[[], int]:
    """Free memory of the pool, on a stream that does not capture."""
    stream = cuda.new_stream()
    memory = [cuda.get("cuMemAllocAsync", NBYTES, stream) for _ in MODES]
    return lambda: cuda.answer("cuMemFreeAsync", memory.pop(), stream)


@claim
def another_thread_allocates_from_a_pool(cuda: Driver) -> Codes:
    """900 beside a global capture, which is broken, though no stream of it is named."""
    return beside(cuda, allocation(cuda))


@claim
def another_thread_frees_to_a_pool(cuda: Driver) -> Codes:
    """The same."""
    return beside(cuda, freeing(cuda))


@claim
def another_thread_uses_a_pool_in_the_relaxed_mode(cuda: Driver) -> Codes:
    """0, and no capture is broken: what memory of dlx does."""
    codes = beside(cuda, relaxed(cuda, allocation(cuda)), {"allocate": GLOBAL})
    return codes | beside(cuda, relaxed(cuda, freeing(cuda)), {"free": GLOBAL})


def copies(cuda: Driver, *, up: bool, pinned: bool = False) -> Callable[[], int]:
    """Copy between the host and the device, on a stream that does not capture."""
    stream, device = cuda.new_stream(), cuda.get("cuMemAlloc_v2", NBYTES)
    pageable = create_string_buffer(NBYTES)
    host = addressof(pageable)
    if pinned:
        host = cuda.get("cuMemHostAlloc", NBYTES, 0)
    target, source = (device, host) if up else (host, device)

    def copy() -> int:
        assert pageable
        return cuda.answer("cuMemcpyAsync", target, source, NBYTES, stream)

    return copy


@claim
def another_thread_copies_pageable_memory_up(cuda: Driver) -> Codes:
    """900 beside a global capture: the driver may wait for the stream."""
    return beside(cuda, copies(cuda, up=True))


@claim
def another_thread_copies_pageable_memory_down(cuda: Driver) -> Codes:
    """The same."""
    return beside(cuda, copies(cuda, up=False))


@claim
def another_thread_copies_pageable_memory_in_the_relaxed_mode(cuda: Driver) -> Codes:
    """0, and no capture is broken: what copies of dlx do."""
    codes = beside(cuda, relaxed(cuda, copies(cuda, up=True)), {"up": GLOBAL})
    return codes | beside(cuda, relaxed(cuda, copies(cuda, up=False)), {"down": GLOBAL})


@claim
def another_thread_copies_pinned_memory(cuda: Driver) -> Codes:
    """0: nothing is staged."""
    codes = beside(cuda, copies(cuda, up=True, pinned=True), {"up": GLOBAL})
    return codes | beside(cuda, copies(cuda, up=False, pinned=True), {"down": GLOBAL})


@claim
def a_pageable_copy_is_captured(cuda: Driver) -> Codes:
    """0 on the capturing stream itself: a node (pytorch/pytorch#172156)."""
    device, host = cuda.get("cuMemAlloc_v2", NBYTES), create_string_buffer(NBYTES)
    stream = begin(cuda)
    copy = ("cuMemcpyAsync", device, addressof(host), NBYTES, stream)
    return {"copy": cuda.answer(*copy), "end": end(cuda, stream)}


@claim
def rows_go_to_pageable_memory(cuda: Driver) -> Codes:
    """0 for `CU_MEMORYTYPE_HOST`, from memory named as unified."""
    stream, host = cuda.new_stream(), create_string_buffer(6)
    device = cuda.get("cuMemAlloc_v2", NBYTES)
    cuda.call("cuMemsetD8Async", device, 7, NBYTES, stream)
    copy = Copy2d(
        srcMemoryType=4, srcDevice=device, srcPitch=4,
        dstMemoryType=1, dstHost=addressof(host), dstPitch=2,
        WidthInBytes=2, Height=3,
    )  # fmt: skip
    codes = {"copy": cuda.answer("cuMemcpy2DAsync_v2", byref(copy), stream)}
    cuda.call("cuStreamSynchronize", stream)
    return codes | {"arrived": int(host.raw == bytes([7] * 6))}


@claim
def a_capture_frees_only_what_it_has_allocated(cuda: Driver) -> Codes:
    """`cuMemFreeAsync` in a capture takes an allocation of the graph."""
    idle = cuda.new_stream()
    memory = cuda.get("cuMemAllocAsync", NBYTES, idle)
    stream = begin(cuda)
    code = cuda.answer("cuMemFreeAsync", memory, stream)
    return {"free": code, "end": end(cuda, stream)}


@claim
def memory_of_a_pool_is_of_a_device(cuda: Driver) -> Codes:
    """Its device is told like that of other memory; its context is not asked for."""
    memory = cuda.get("cuMemAllocAsync", NBYTES, cuda.new_stream())
    place = c_int(-1)
    ordinal = ("cuPointerGetAttribute", byref(place), ORDINAL, memory)
    return {"ordinal": cuda.answer(*ordinal), "device": place.value}


@claim
def copies_between_devices_name_them(cuda: Driver) -> Codes:
    """Pools: `cuMemcpyPeerAsync` works, and `cuMemcpyAsync` does not reach them."""
    contexts, memory = [cuda.use_primary_context()], Codes()
    contexts.append(cuda.get("cuDevicePrimaryCtxRetain", 1))
    streams = []
    for name, context in (("here", contexts[0]), ("there", contexts[1])):
        cuda.call("cuCtxSetCurrent", context)
        streams.append(cuda.new_stream())
        memory[name] = cuda.get("cuMemAllocAsync", NBYTES, streams[-1])
        memory[f"plain {name}"] = cuda.get("cuMemAlloc_v2", NBYTES)
        cuda.call("cuStreamSynchronize", streams[-1])
    stream, codes = streams[1], Codes()
    plain = (memory["plain there"], memory["plain here"], NBYTES, stream)
    codes["plain"] = cuda.answer("cuMemcpyAsync", *plain)
    pools = (memory["there"], contexts[1], memory["here"], contexts[0])
    codes["pools by name"] = cuda.answer("cuMemcpyPeerAsync", *pools, NBYTES, stream)
    pool = (memory["there"], memory["here"], NBYTES, stream)
    codes["pools"] = cuda.answer("cuMemcpyAsync", *pool)
    return codes
