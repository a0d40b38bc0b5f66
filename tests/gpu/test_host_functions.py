"""Host functions, which may not call the driver.

`cuda.h` says of `cuLaunchHostFunc` that calls from one "may result in" error 800, so a
driver may also permit them. Each program runs in a child process with a time limit.
"""

from __future__ import annotations

import pytest

from gpu.child import ask_child, run_child
from gpu.clients import client_of
from gpu.host_functions import CALLS
from gpu.machine import NEW, Machine
from gpu.report import found

LIBRARIES = ["torch", "cupy"]
ROUNDS = 100


def drops(library: str, release: str) -> dict[str, int]:
    """Let memory go in host functions while another stream has yet to read it."""
    client_of(library)
    arguments = (library, release, ROUNDS)
    said: dict[str, int] = ask_child(
        "host_functions", "drops", *arguments, library=library
    )
    found(f"let go in a host function, {library} {release}: {said} of {ROUNDS}")
    return said


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_order_memory_let_go_in_a_host_function_is_handed_out(
    gpu: Machine, library: str
) -> None:
    """H4: the control; the deleter of the library runs in the host function."""
    assert drops(library, "none")["strikes"] > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_memory_let_go_in_a_host_function_is_released_later(
    gpu: Machine, library: str
) -> None:
    """H4, H5: not before S has read it, and nothing is lost."""
    assert drops(library, "auto") == {"strikes": 0, "lost": 0}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_host_function_may_keep_a_tensor_for_its_own_stream(
    gpu: Machine, library: str
) -> None:
    """H5: all memory is released, though no event could be recorded where it died."""
    client_of(library)
    said = ask_child("host_functions", "kept_alive", library, ROUNDS, library=library)
    assert said == {"ran": ROUNDS, "lost": 0}


def test_an_import_in_a_host_function_is_refused_clearly(gpu: Machine) -> None:
    """H5: by error 800 or not at all; all goes on outside, and nothing is lost."""
    client_of("torch")
    said = ask_child("host_functions", "imports", "torch", library="torch")
    found(f"in a host function: {said['inside']}")
    assert set(said["inside"].values()) <= {"done", "not permitted"}
    assert said["outside"] == dict.fromkeys(CALLS, "done")
    assert (said["value"], said["lost"]) == (NEW, 0)


def test_memory_of_dlx_let_go_in_a_host_function_is_freed_later(gpu: Machine) -> None:
    """H5: `cuMemFreeAsync` may answer 800 there, which must not lose the memory."""
    assert ask_child("host_functions", "empties", 20) == {"lost": 0}


def test_a_process_ends_behind_a_host_function(gpu: Machine) -> None:
    """H5: whether or not the memory that waits behind it is released."""
    code, out, errors = run_child("host_functions", "ends")
    assert code == 0, errors
    found(f"at the exit of a process, behind a host function: {out.split()}")
    assert '"end"' in out.split()
