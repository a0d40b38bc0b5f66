"""What docs/streams.md says of contexts and handles, as raw calls (`claims.py`)."""

from __future__ import annotations

from ctypes import byref, c_int, c_uint64, create_string_buffer

from gpu.claimed import LEGACY, PER_THREAD, Codes, claim, elsewhere
from gpu.driver import Driver

SM_RESOURCE = DEFAULT_STREAM = 1
RESOURCE_SIZE = 1024
"""More than any version of `CUdevResource` has."""


def new_green(cuda: Driver) -> tuple[int, int]:
    """Make a green context of all of the device; give it, and its `CUcontext`."""
    resource = create_string_buffer(RESOURCE_SIZE)
    cuda.call("cuDeviceGetDevResource", 0, resource, SM_RESOURCE)
    description = cuda.get("cuDevResourceGenerateDesc", resource, 1)
    green = cuda.get("cuGreenCtxCreate", description, 0, DEFAULT_STREAM)
    return green, cuda.get("cuCtxFromGreenCtx", green)


@claim
def some_calls_need_a_current_context(cuda: Driver) -> Codes:
    """201, whatever the handles name."""
    stream, event, found = cuda.new_stream(), cuda.new_event(), c_uint64()
    memory = cuda.get("cuMemAlloc_v2", 256)
    cuda.call("cuEventRecord", event, stream)
    cuda.call("cuStreamSynchronize", stream)
    cuda.call("cuCtxSetCurrent", 0)
    return {
        "create event": cuda.answer("cuEventCreate", byref(found), 2),
        "record": cuda.answer("cuEventRecord", event, stream),
        "wait": cuda.answer("cuStreamWaitEvent", stream, event, 0),
        "synchronize event": cuda.answer("cuEventSynchronize", event),
        "query stream": cuda.answer("cuStreamQuery", stream),
        "synchronize stream": cuda.answer("cuStreamSynchronize", stream),
        "synchronize context": cuda.answer("cuCtxSynchronize"),
        "legacy": cuda.answer("cuStreamQuery", LEGACY),
        "context of legacy": cuda.answer("cuStreamGetCtx", LEGACY, byref(found)),
        "free": cuda.answer("cuMemFree_v2", memory),
    }


@claim
def some_calls_need_no_current_context(cuda: Driver) -> Codes:
    """0 for handles that name something."""
    stream, event, found = cuda.new_stream(), cuda.new_event(), c_uint64()
    memory, place = c_uint64(), c_int()
    cuda.call("cuCtxSetCurrent", 0)
    codes = {
        "context of stream": cuda.answer("cuStreamGetCtx", stream, byref(found)),
        "id": cuda.answer("cuStreamGetId", stream, byref(found)),
        "is capturing": cuda.answer("cuStreamIsCapturing", stream, byref(place)),
        "query event": cuda.answer("cuEventQuery", event),
        "allocate": cuda.answer("cuMemAllocAsync", byref(memory), 256, stream),
        "free": cuda.answer("cuMemFreeAsync", memory, stream),
    }
    codes["destroy event"] = cuda.answer("cuEventDestroy_v2", event)
    return codes | {"destroy stream": cuda.answer("cuStreamDestroy_v2", stream)}


@claim
def handles_are_used_again(cuda: Driver) -> Codes:
    """1: a stream or event may have the handle of one that was destroyed."""
    codes, number = Codes(), [c_uint64(), c_uint64()]
    stream, event = cuda.new_stream(), cuda.new_event()
    cuda.call("cuStreamGetId", stream, byref(number[0]))
    cuda.call("cuStreamDestroy_v2", stream)
    again = cuda.new_stream()
    cuda.call("cuStreamGetId", again, byref(number[1]))
    codes["stream"] = int(again == stream)
    codes["number"] = int(number[0].value == number[1].value)
    cuda.call("cuEventDestroy_v2", event)
    return codes | {"event": int(cuda.new_event() == event)}


@claim
def the_streams_of_a_green_context(cuda: Driver) -> Codes:
    """The default stream is its own; `cuStreamGetCtx_v2` tells both contexts."""
    primary = cuda.use_primary_context()
    green, context = new_green(cuda)
    codes, found, of_green = Codes(), c_uint64(), c_uint64()
    cuda.call("cuCtxPushCurrent_v2", context)
    for name, stream in (("legacy", LEGACY), ("made", cuda.new_stream())):
        codes[name] = cuda.answer("cuStreamGetCtx", stream, byref(found))
        codes[f"{name} as said"] = int(found.value == context)
        places = byref(found), byref(of_green)
        codes[f"{name} both"] = cuda.answer("cuStreamGetCtx_v2", stream, *places)
        codes[f"{name} primary"] = int(found.value == primary)
        codes[f"{name} green"] = int(of_green.value == green)
    return codes


@claim
def a_green_context_has_no_per_thread_stream(cuda: Driver) -> Codes:
    """400."""
    _, context = new_green(cuda)
    found = c_uint64()
    cuda.call("cuCtxPushCurrent_v2", context)
    places = byref(found), byref(found)
    return {
        "contexts": cuda.answer("cuStreamGetCtx_v2", PER_THREAD, *places),
        "query": cuda.answer("cuStreamQuery", PER_THREAD),
    }


@claim
def a_green_context_is_current_in_one_thread(cuda: Driver) -> Codes:
    """201 in the second."""
    _, context = new_green(cuda)
    codes = {"first": cuda.answer("cuCtxPushCurrent_v2", context)}

    def push() -> None:
        codes["second"] = cuda.answer("cuCtxPushCurrent_v2", context)

    elsewhere(cuda, push)
    return codes


@claim
def an_event_is_of_one_context_green_or_not(cuda: Driver) -> Codes:
    """400 to record an event of the primary context on a green stream."""
    event, here = cuda.new_event(), cuda.new_stream()
    _, context = new_green(cuda)
    cuda.call("cuCtxPushCurrent_v2", context)
    there, own = cuda.new_stream(), cuda.new_event()
    return {
        "primary on green": cuda.answer("cuEventRecord", event, there),
        "green on primary": cuda.answer("cuEventRecord", own, here),
        "green on green": cuda.answer("cuEventRecord", own, there),
        "wait": cuda.answer("cuStreamWaitEvent", here, own, 0),
    }
