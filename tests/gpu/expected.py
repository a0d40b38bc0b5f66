"""The driver's answers to the claims, and where the simulated driver is harsher.

`EXPECTED` is what a GPU has answered (docs/devices.md names it), but for claims
that need two. `0` is success, other numbers are those of `CUresult`; a `status` is one
of `CUstreamCaptureStatus`.
"""

from gpu.claimed import Codes
from gpu.expected_contexts import EXPECTED_OF_CONTEXTS
from gpu.expected_memory import MEMORY

EXPECTED: dict[str, Codes] = (
    {
        "one_capture_is_one_graph": {
            "record": 0,
            "wait": 0,
            "drawn in": 0,
            "drawn in status": 1,
            "record back": 0,
            "wait back": 0,
            "end": 0,
        },
        "a_stream_drawn_in_must_come_back": {"wait": 0, "work": 0, "end": 904},
        "a_stream_drawn_in_without_work_need_not_come_back": {"wait": 0, "end": 0},
        "a_capture_does_not_wait_for_what_is_outside": {"wait": 905, "end": 901},
        "two_captures_do_not_merge": {
            "record": 0,
            "wait": 902,
            "end one": 901,
            "end other": 901,
        },
        "to_ask_the_legacy_stream_is_harmless": {
            "blocking": 906,
            "end blocking": 0,
            "non-blocking": 0,
            "non-blocking status": 0,
            "end non-blocking": 0,
        },
        "to_record_on_the_legacy_stream_is_not": {
            "record": 906,
            "after": 0,
            "after status": 2,
            "end": 901,
        },
        "a_captured_event_cannot_be_asked": {
            "query": 907,
            "end": 901,
            "query after": 1,
            "synchronize after": 1,
            "record anew": 0,
        },
        "a_query_in_another_thread_breaks_a_global_capture": {
            "query": 900,
            "after": 0,
            "after status": 2,
            "end": 901,
        },
        "a_relaxed_thread_may_query": {
            "exchange": 0,
            "mode before": 0,
            "query": 0,
            "after": 0,
            "after status": 1,
            "end": 0,
        },
        "a_query_in_another_thread_leaves_a_thread_local_capture": {
            "query": 0,
            "after": 0,
            "after status": 1,
            "end": 0,
        },
        "the_capturing_stream_cannot_be_waited_for": {
            "query": 900,
            "end": 901,
            "synchronize 2": 900,
            "end 2": 901,
        },
        "memory_is_not_allocated": {
            "global": 900,
            "end": 901,
            "relaxed": 0,
            "end relaxed": 0,
            "async": 0,
            "free async": 0,
            "end async": 0,
        },
        "cuStreamGetCtx_in_a_capture": {"cuStreamGetCtx": 0, "end": 0},
        "cuStreamGetId_in_a_capture": {"cuStreamGetId": 900, "end": 901},
        "cuStreamGetDevice_in_a_capture": {"cuStreamGetDevice": 900, "end": 901},
        "cuCtxGetCurrent_in_a_capture": {"cuCtxGetCurrent": 0, "end": 0},
        "cuCtxGetDevice_in_a_capture": {"cuCtxGetDevice": 0, "end": 0},
        "cuStreamGetCaptureInfo_in_a_capture": {
            "cuStreamGetCaptureInfo_v2": 0,
            "end": 0,
        },
        "cuPointerGetAttributes_in_a_capture": {
            "cuPointerGetAttributes": 0,
            "end": 0,
            "cuPointerGetAttribute": 0,
            "ordinal": 0,
        },
        "events_and_contexts_in_a_capture": {
            "push": 0,
            "create": 0,
            "record": 0,
            "destroy": 0,
            "pop": 0,
            "end": 0,
        },
        "an_event_is_of_the_context_of_its_stream": {
            "record there": 400,
            "record here": 0,
            "wait there": 0,
        },
        "the_default_streams_are_those_of_the_current_context": {
            "legacy": 0,
            "legacy as said": 1,
            "per thread": 0,
            "per thread as said": 1,
            "handle": 0,
            "handle as said": 1,
        },
        "an_event_outlives_its_stream": {"wait": 0, "synchronize": 0, "query": 0},
    }
    | EXPECTED_OF_CONTEXTS
    | MEMORY
)

HARSHER: dict[str, Codes] = {
    # cuda.h lists 201 for each of them, and says that it "most frequently" means that
    # the thread has no context.
    "some_calls_need_a_current_context": {
        "record": 201,
        "wait": 201,
        "synchronize event": 201,
        "query stream": 201,
        "synchronize stream": 201,
        "free": 201,
    },
    # "A green context can be current to only one thread at a time" (cuda.h,
    # cuGreenCtxCreate).
    "a_green_context_is_current_in_one_thread": {"second": 201},
    # Event and stream "must be from the same context" (cuda.h, cuEventRecord).
    "an_event_is_of_one_context_green_or_not": {
        "primary on green": 400,
        "green on primary": 400,
    },
    # Any call "may result in CUDA_ERROR_NOT_PERMITTED, but this is not required"
    # (cuda.h, cuLaunchHostFunc).
    "a_host_function_may_not_call_the_driver": {"query": 800, "record": 800},
    # The driver "may synchronize with the stream" (CUDA's API synchronization
    # behavior), which is unsafe beside captures.
    "another_thread_copies_pageable_memory_up": {"global": 900, "end global": 901},
    "another_thread_copies_pageable_memory_down": {"global": 900, "end global": 901},
    # A stream that was drawn in is "unjoined" (cuda.h,
    # CUDA_ERROR_STREAM_CAPTURE_UNJOINED); none is drawn in for no work.
    "a_stream_drawn_in_without_work_need_not_come_back": {"end": 904},
}
"""Where documentation allows a driver to answer worse than that GPU's."""

SIMULATED = {name: codes | HARSHER.get(name, {}) for name, codes in EXPECTED.items()}
"""The simulated driver's answers."""
