"""What the kit runs, the most telling first: the only table of its groups.

A new file in tests/gpu joins a group by its name; `tests/house/test_gpu_kit.py`
checks that none is left out. A pattern may be here before its tests are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Group:
    """Tests that answer one question, and how long they may take."""

    name: str
    title: str
    minutes: float
    files: tuple[str, ...] = ()
    """Patterns of files in tests/gpu."""
    only: str = ""
    """Which of their tests: an expression of pytest's `-k`."""
    test_seconds: float = 60
    """After this a test counts as hung; those after it run in a new process."""
    program: tuple[str, ...] = field(default=())
    """In place of tests: a program of Python, with `{results}` for its results."""


OTHER_LIBRARIES = "numba or jax or pinned"
ORDER = (
    *("test_events*.py", "test_order*.py"),
    *("test_hazards*.py", "test_current_stream*.py", "test_launcher*.py"),
)
"""Two groups divide these files."""

GROUPS = [
    Group(
        "claims",
        "the driver answers as docs/streams.md says",
        5,
        ("test_driver_claims*.py",),
    ),
    Group(
        "order",
        "events, order, launches and hazards with torch and CuPy",
        6,
        ORDER,
        only=f"not ({OTHER_LIBRARIES})",
    ),
    Group(
        "consumers",
        "tvm-ffi, Arrow, oneAPI, interfaces, handles, contexts and many arguments",
        8,
        (
            *("test_tvm_ffi*.py", "test_many_arguments*.py", "test_handles*.py"),
            *("test_interface*.py", "test_arrow*.py", "test_oneapi*.py"),
            *("test_contexts*.py", "test_torch_keys*.py"),
        ),
        test_seconds=120,
    ),
    Group(
        "capture",
        "captures, also of torch.cuda.graph and torch.compile",
        5,
        ("test_capture*.py",),
        test_seconds=180,
    ),
    Group(
        "blocking",
        "host functions, full queues and allocation streams",
        5,
        (
            "test_host_functions*.py",
            "test_full_queues*.py",
            "test_allocation_streams*.py",
        ),
    ),
    Group("green", "green contexts", 2, ("test_green_contexts*.py",)),
    Group(
        "copies",
        "copies, expandable segments, narrow columns and drops of 2 GiB",
        4,
        (
            "test_copies*.py",
            "test_expandable_segments*.py",
            "test_narrow_columns*.py",
            "test_large_drops*.py",
        ),
    ),
    Group(
        "libraries",
        "Numba's default stream, JAX and pinned memory",
        4,
        ("test_numba*.py", "test_jax*.py", "test_pinned*.py", *ORDER),
        only=OTHER_LIBRARIES,
    ),
    Group(
        "benchmarks",
        "what each path costs",
        5,
        program=("benches/gpu/bench_gpu.py", "--quick", "--json", "{results}"),
    ),
]
