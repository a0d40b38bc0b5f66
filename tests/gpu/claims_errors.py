"""What docs/streams.md says of errors that stay, as raw calls (`claims.py`)."""

from __future__ import annotations

from ctypes import addressof, byref, c_int, c_uint64, c_void_p, create_string_buffer

from gpu.claimed import Codes, claim
from gpu.driver import Driver
from gpu.kernels import PTX


def fault(cuda: Driver, stream: int) -> None:
    """Let a kernel write to address 0."""
    if cuda.has("sim_fault"):
        cuda.call("sim_fault", stream)
        return
    module = cuda.get("cuModuleLoadData", create_string_buffer(PTX.encode()))
    function = cuda.get("cuModuleGetFunction", module, b"fill")
    values = [c_uint64(0), c_uint64(0), c_uint64(1)]
    places = (c_void_p * 3)(*map(addressof, values))
    sizes = (1, 1, 1, 1, 1, 1, 0)
    cuda.call("cuLaunchKernel", function, *sizes, stream, places, c_void_p())


@claim
def an_illegal_address_ends_the_context(cuda: Driver) -> Codes:
    """700 to whatever comes after it, but for the stack of contexts."""
    stream, event, found = cuda.new_stream(), cuda.new_event(), c_uint64()
    context, memory = cuda.use_primary_context(), cuda.get("cuMemAlloc_v2", 256)
    pooled = cuda.get("cuMemAllocAsync", 256, stream)
    cuda.call("cuStreamSynchronize", stream)
    fault(cuda, stream)
    codes = {
        "synchronize": cuda.answer("cuStreamSynchronize", stream),
        "again": cuda.answer("cuStreamSynchronize", stream),
        "record": cuda.answer("cuEventRecord", event, stream),
        "query": cuda.answer("cuEventQuery", event),
        "wait": cuda.answer("cuStreamWaitEvent", stream, event, 0),
        "is capturing": cuda.answer("cuStreamIsCapturing", stream, byref(c_int())),
        "context of stream": cuda.answer("cuStreamGetCtx", stream, byref(found)),
        "synchronize context": cuda.answer("cuCtxSynchronize"),
        "create event": cuda.answer("cuEventCreate", byref(found), 2),
        "destroy event": cuda.answer("cuEventDestroy_v2", event),
        "free": cuda.answer("cuMemFree_v2", memory),
        "free async": cuda.answer("cuMemFreeAsync", pooled, stream),
        "retain": cuda.answer("cuDevicePrimaryCtxRetain", byref(found), 0),
        "push": cuda.answer("cuCtxPushCurrent_v2", context),
    }
    codes["current"] = cuda.answer("cuCtxGetCurrent", byref(found))
    return codes | {"current as before": int(found.value == context)}
