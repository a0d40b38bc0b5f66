"""What docs/streams.md says of the driver, as raw calls; each claim in its own process.

A claim returns the codes that the driver answered, by the name of the call. Processes
are not shared, because an invalidated capture stays invalid.

    python -m gpu.claims [NAME]     # DLX_LIBCUDA may name the simulated driver
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_int, c_uint64, c_void_p

from gpu import (
    claims_contexts,
    claims_errors,
    claims_host,
    claims_memory,
    claims_threads,
)
from gpu.claimed import (
    BLOCKING,
    CLAIMS,
    GLOBAL,
    LEGACY,
    PER_THREAD,
    RELAXED,
    THREAD_LOCAL,
    Codes,
    begin,
    claim,
    during,
    elsewhere,
    end,
    status,
)
from gpu.driver import Driver

__all__ = ["CLAIMS", "Codes", "run"]

_ELSEWHERE = (
    claims_contexts,
    claims_errors,
    claims_host,
    claims_memory,
    claims_threads,
)
"""Where the claims are that are not about captures alone: they add themselves."""


@claim
def one_capture_is_one_graph(cuda: Driver) -> Codes:
    """A wait between streams of the same capture is an edge of its graph."""
    one, other, event = begin(cuda), cuda.new_stream(), cuda.new_event()
    codes = {
        "record": cuda.answer("cuEventRecord", event, one),
        "wait": cuda.answer("cuStreamWaitEvent", other, event, 0),
    }
    status(cuda, other, codes, "drawn in")
    codes["record back"] = cuda.answer("cuEventRecord", event, other)
    codes["wait back"] = cuda.answer("cuStreamWaitEvent", one, event, 0)
    return codes | {"end": end(cuda, one)}


@claim
def a_stream_drawn_in_must_come_back(cuda: Driver) -> Codes:
    """904, if work was queued on it."""
    memory = cuda.get("cuMemAlloc_v2", 256)
    one, other, event = begin(cuda), cuda.new_stream(), cuda.new_event()
    cuda.call("cuEventRecord", event, one)
    codes = {"wait": cuda.answer("cuStreamWaitEvent", other, event, 0)}
    codes["work"] = cuda.answer("cuMemsetD8Async", memory, 0, 256, other)
    return codes | {"end": end(cuda, one)}


@claim
def a_stream_drawn_in_without_work_need_not_come_back(cuda: Driver) -> Codes:
    """0: the graph has nothing of it."""
    one, other, event = begin(cuda), cuda.new_stream(), cuda.new_event()
    cuda.call("cuEventRecord", event, one)
    code = cuda.answer("cuStreamWaitEvent", other, event, 0)
    return {"wait": code, "end": end(cuda, one)}


@claim
def a_capture_does_not_wait_for_what_is_outside(cuda: Driver) -> Codes:
    """905."""
    outside, event = cuda.new_stream(), cuda.new_event()
    cuda.call("cuEventRecord", event, outside)
    stream = begin(cuda)
    code = cuda.answer("cuStreamWaitEvent", stream, event, 0)
    return {"wait": code, "end": end(cuda, stream)}


@claim
def two_captures_do_not_merge(cuda: Driver) -> Codes:
    """902."""
    one, other, event = begin(cuda), begin(cuda), cuda.new_event()
    codes = {"record": cuda.answer("cuEventRecord", event, one)}
    codes["wait"] = cuda.answer("cuStreamWaitEvent", other, event, 0)
    return codes | {"end one": end(cuda, one), "end other": end(cuda, other)}


@claim
def to_ask_the_legacy_stream_is_harmless(cuda: Driver) -> Codes:
    """906 for the query, and the capture goes on."""
    codes: Codes = {}
    stream = begin(cuda, flags=BLOCKING)
    status(cuda, LEGACY, codes, "blocking")
    codes["end blocking"] = end(cuda, stream)
    stream = begin(cuda)
    status(cuda, LEGACY, codes, "non-blocking")
    return codes | {"end non-blocking": end(cuda, stream)}


@claim
def to_record_on_the_legacy_stream_is_not(cuda: Driver) -> Codes:
    """906, and the capture has failed."""
    event, codes = cuda.new_event(), Codes()
    stream = begin(cuda, flags=BLOCKING)
    codes["record"] = cuda.answer("cuEventRecord", event, LEGACY)
    status(cuda, stream, codes, "after")
    return codes | {"end": end(cuda, stream)}


@claim
def a_captured_event_cannot_be_asked(cuda: Driver) -> Codes:
    """907 for query and synchronize; 1 once the capture is over."""
    event, stream = cuda.new_event(), begin(cuda)
    cuda.call("cuEventRecord", event, stream)
    codes = {"query": cuda.answer("cuEventQuery", event)}
    codes["end"] = end(cuda, stream)
    codes["query after"] = cuda.answer("cuEventQuery", event)
    codes["synchronize after"] = cuda.answer("cuEventSynchronize", event)
    codes["record anew"] = cuda.answer("cuEventRecord", event, cuda.new_stream())
    return codes


@claim
def a_query_in_another_thread_breaks_a_global_capture(cuda: Driver) -> Codes:
    """900 for an event that has nothing to do with the capture."""
    return query_in_a_thread(cuda, GLOBAL, None)


@claim
def a_relaxed_thread_may_query(cuda: Driver) -> Codes:
    """`cuThreadExchangeStreamCaptureMode(RELAXED)` around the query, as dlx has it."""
    return query_in_a_thread(cuda, GLOBAL, RELAXED)


@claim
def a_query_in_another_thread_leaves_a_thread_local_capture(cuda: Driver) -> Codes:
    """The mode is that of the thread that began the capture."""
    return query_in_a_thread(cuda, THREAD_LOCAL, None)


def query_in_a_thread(cuda: Driver, mode: int, exchanged: int | None) -> Codes:
    """Query an event of another stream in another thread, during a capture."""
    event, idle, codes = cuda.new_event(), cuda.new_stream(), Codes()
    cuda.call("cuEventRecord", event, idle)
    cuda.call("cuStreamSynchronize", idle)
    stream = begin(cuda, mode)

    def query() -> None:
        place = c_int(-1 if exchanged is None else exchanged)
        if exchanged is not None:
            codes["exchange"] = cuda.answer(
                "cuThreadExchangeStreamCaptureMode", byref(place)
            )
            codes["mode before"] = place.value
        codes["query"] = cuda.answer("cuEventQuery", event)

    elsewhere(cuda, query)
    status(cuda, stream, codes, "after")
    return codes | {"end": end(cuda, stream)}


@claim
def the_capturing_stream_cannot_be_waited_for(cuda: Driver) -> Codes:
    """900 for synchronize and query."""
    codes = during(cuda, "query", lambda stream: cuda.answer("cuStreamQuery", stream))
    other = during(
        cuda, "synchronize", lambda stream: cuda.answer("cuStreamSynchronize", stream)
    )
    return codes | {f"{name} 2": code for name, code in other.items()}


@claim
def memory_is_not_allocated(cuda: Driver) -> Codes:
    """900 for `cuMemAlloc`, unless the thread is relaxed; not for `cuMemAllocAsync`."""
    memory, codes = c_uint64(), Codes()
    codes |= during(
        cuda, "global", lambda _: cuda.answer("cuMemAlloc_v2", byref(memory), 256)
    )
    stream = begin(cuda, RELAXED)
    codes["relaxed"] = cuda.answer("cuMemAlloc_v2", byref(memory), 256)
    codes["end relaxed"] = end(cuda, stream)
    stream = begin(cuda)
    code = cuda.answer("cuMemAllocAsync", byref(memory), 256, stream)
    codes["async"] = code
    if code == 0:
        codes["free async"] = cuda.answer("cuMemFreeAsync", memory, stream)
    return codes | {"end async": end(cuda, stream)}


def asking(name: str, *, stream: bool) -> None:
    """Claim that a query is harmless in a global capture."""

    def ask(cuda: Driver) -> Codes:
        """0, and the capture goes on."""
        place = c_uint64()
        if stream:
            return during(cuda, name, lambda s: cuda.answer(name, s, byref(place)))
        return during(cuda, name, lambda _: cuda.answer(name, byref(place)))

    CLAIMS[f"{name}_in_a_capture"] = ask


for _name in ("cuStreamGetCtx", "cuStreamGetId", "cuStreamGetDevice"):
    asking(_name, stream=True)
for _name in ("cuCtxGetCurrent", "cuCtxGetDevice"):
    asking(_name, stream=False)


@claim
def cuStreamGetCaptureInfo_in_a_capture(cuda: Driver) -> Codes:
    """0: the id that tells whether two streams are in one capture."""
    place, number, nothing = c_int(), c_uint64(), c_void_p()
    return during(
        cuda,
        "cuStreamGetCaptureInfo_v2",
        lambda stream: cuda.answer(
            "cuStreamGetCaptureInfo_v2",
            stream,
            byref(place),
            byref(number),
            *[nothing] * 3,
        ),
    )


@claim
def cuPointerGetAttributes_in_a_capture(cuda: Driver) -> Codes:
    """0: the device can be queried (`CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`)."""
    address = cuda.get("cuMemAlloc_v2", 256)
    ordinal, which = c_int(-1), (c_int * 1)(9)
    places = (c_void_p * 1)(ctypes.addressof(ordinal))
    codes = during(
        cuda,
        "cuPointerGetAttributes",
        lambda _: cuda.answer("cuPointerGetAttributes", 1, which, places, address),
    )
    one = during(
        cuda,
        "cuPointerGetAttribute",
        lambda _: cuda.answer("cuPointerGetAttribute", byref(ordinal), 9, address),
    )
    return codes | one | {"ordinal": ordinal.value}


@claim
def events_and_contexts_in_a_capture(cuda: Driver) -> Codes:
    """0: what dlx does to order two streams of a capture, with its pool empty."""
    stream, event, codes = begin(cuda), c_uint64(), Codes()
    context = c_uint64()
    codes["push"] = cuda.answer("cuCtxPushCurrent_v2", cuda.use_primary_context())
    codes["create"] = cuda.answer("cuEventCreate", byref(event), 2)
    codes["record"] = cuda.answer("cuEventRecord", event, stream)
    codes["destroy"] = cuda.answer("cuEventDestroy_v2", event)
    codes["pop"] = cuda.answer("cuCtxPopCurrent_v2", byref(context))
    return codes | {"end": end(cuda, stream)}


@claim
def an_event_is_of_the_context_of_its_stream(cuda: Driver) -> Codes:
    """400 to record it elsewhere; to wait for it elsewhere is allowed."""
    event, here = cuda.new_event(), cuda.new_stream()
    cuda.get("cuCtxCreate_v2", 0, 0)
    there = cuda.new_stream()
    codes = {"record there": cuda.answer("cuEventRecord", event, there)}
    codes["record here"] = cuda.answer("cuEventRecord", event, here)
    codes["wait there"] = cuda.answer("cuStreamWaitEvent", there, event, 0)
    return codes


@claim
def the_default_streams_are_those_of_the_current_context(cuda: Driver) -> Codes:
    """1 and 2 name streams of whatever context is current (R86); others do not."""
    first, stream = cuda.use_primary_context(), cuda.new_stream()
    second = cuda.get("cuCtxCreate_v2", 0, 0)
    found = c_uint64()
    codes: Codes = {}
    for name, handle, wanted in (
        ("legacy", LEGACY, second),
        ("per thread", PER_THREAD, second),
        ("handle", stream, first),
    ):
        codes[name] = cuda.answer("cuStreamGetCtx", handle, byref(found))
        codes[f"{name} as said"] = int(found.value == wanted)
    return codes


@claim
def an_event_outlives_its_stream(cuda: Driver) -> Codes:
    """0: dlx keeps the event of a producer's stream, which may be destroyed (H3)."""
    stream, event = cuda.new_stream(), cuda.new_event()
    cuda.call("cuEventRecord", event, stream)
    cuda.call("cuStreamDestroy_v2", stream)
    return {
        "wait": cuda.answer("cuStreamWaitEvent", cuda.new_stream(), event, 0),
        "synchronize": cuda.answer("cuEventSynchronize", event),
        "query": cuda.answer("cuEventQuery", event),
    }


def run(name: str) -> Codes:
    """Run one claim."""
    cuda = Driver()
    cuda.use_primary_context()
    return CLAIMS[name](cuda)


if __name__ == "__main__":
    for each in sys.argv[1:] or CLAIMS:
        print(json.dumps({each: run(each)}))
