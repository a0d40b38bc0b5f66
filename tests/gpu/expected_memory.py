"""What the driver answers about memory (`claims_memory`)."""

from gpu.claimed import Codes

UNSAFE: Codes = {
    "global": 900,
    "end global": 901,
    "thread local": 0,
    "end thread local": 0,
    "relaxed": 0,
    "end relaxed": 0,
}
"""Of a call that `cuThreadExchangeStreamCaptureMode` means, in another thread."""

SAFE: Codes = {
    "global": 0,
    "end global": 0,
    "thread local": 0,
    "end thread local": 0,
    "relaxed": 0,
    "end relaxed": 0,
}

MEMORY: dict[str, Codes] = {
    "another_thread_allocates": UNSAFE,
    "another_thread_allocates_pinned_memory": UNSAFE,
    "another_thread_frees": UNSAFE,
    "another_thread_frees_in_the_relaxed_mode": SAFE,
    "another_thread_allocates_from_a_pool": UNSAFE,
    "another_thread_frees_to_a_pool": UNSAFE,
    "another_thread_uses_a_pool_in_the_relaxed_mode": {
        "allocate": 0,
        "end allocate": 0,
        "free": 0,
        "end free": 0,
    },
    "another_thread_copies_pageable_memory_up": SAFE,
    "another_thread_copies_pageable_memory_down": SAFE,
    "another_thread_copies_pageable_memory_in_the_relaxed_mode": {
        "up": 0,
        "end up": 0,
        "down": 0,
        "end down": 0,
    },
    "another_thread_copies_pinned_memory": {
        "up": 0,
        "end up": 0,
        "down": 0,
        "end down": 0,
    },
    "rows_go_to_pageable_memory": {"copy": 0, "arrived": 1},
    "a_pageable_copy_is_captured": {"copy": 0, "end": 0},
    "a_capture_frees_only_what_it_has_allocated": {"free": 1, "end": 0},
    "memory_of_a_pool_is_of_a_device": {"ordinal": 0, "device": 0},
    # The code of "pools" is that of ggml-org/llama.cpp#4638; no document has it.
    "copies_between_devices_name_them": {"plain": 0, "pools by name": 0, "pools": 1},
}
