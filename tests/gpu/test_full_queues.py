"""Calls that wait for room in a queue, without the GIL.

A stream takes about a thousand launches, and then each call for it waits. Each program
runs in a child process with a time limit. Where a call does not wait, nothing was
shown, and the test is skipped.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpu.child import ask_child, run_child
from gpu.clients import client_of
from gpu.full_queues import OPERATIONS
from gpu.machine import Machine
from gpu.report import found

ALWAYS = {"copy down", "synchronize", "Stream.synchronize"}
"""Calls that wait for the work itself."""
OF_LIBRARIES = ["import", "borrow, enter", "borrow, exit", "release"]


def goes_on(operation: str, library: str, blocker: str) -> None:
    """Check that another thread can end what an operation waits for."""
    arguments = operation, library, blocker
    said: dict[str, Any] = ask_child("full_queues", "wait", *arguments, library=library)
    found(f"{operation} of {library}, behind a {blocker}: {said}")
    if operation in ALWAYS:
        assert said["waited"]
    if not any(said["full"]):
        pytest.skip(f"a queue took {said['launches']} launches, and was not full")
    if not said["waited"]:
        pytest.skip(f"{operation} does not wait where a queue is full")


@pytest.mark.parametrize("control", ["synchronize", "record"])
def test_a_call_that_waits_with_the_gil_holds_up_what_it_waits_for(
    gpu: Machine, control: str
) -> None:
    """The control: the gate gives up, because no thread of Python can open it."""
    arguments = f"{control} with the GIL", "dlx", "gate"
    code, out, errors = run_child("full_queues", "wait", *arguments)
    found(f"{control} with the GIL: exit code {code}, {out.strip()}")
    if code == 0 and control == "record":
        pytest.skip("cuEventRecord does not wait where a queue is full")
    assert code != 0
    assert "the gate was not opened" in errors


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_full_queue_behind_a_gate_goes_on(gpu: Machine, operation: str) -> None:
    """TensorRT-LLM#15855, LMCache#2952: the GIL is free while the call waits."""
    goes_on(operation, "dlx", "gate")


@pytest.mark.parametrize("operation", ["import", "borrow, exit", "release"])
def test_a_full_queue_behind_a_host_function_goes_on(
    gpu: Machine, operation: str
) -> None:
    """numba-cuda#317: the host function needs the GIL to end."""
    goes_on(operation, "dlx", "host function")


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("operation", OF_LIBRARIES)
def test_a_full_queue_of_a_library_goes_on(
    gpu: Machine, operation: str, library: str
) -> None:
    """The same with tensors whose library is asked for its stream."""
    client_of(library)
    goes_on(operation, library, "gate")
