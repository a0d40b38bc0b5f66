"""Numba's default stream, which its arrays do not name."""

from __future__ import annotations

import json
from typing import Any

import dlx
import numpy as np
import pytest
from support.python_process import run_python

from gpu.clients import client_of
from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.numba_streams import (
    LEGACY,
    PER_THREAD,
    DefaultStream,
    Named,
    early_write,
    late_write,
)
from gpu.report import found

SETTINGS: dict[str, tuple[str, int]] = {
    "no setting": ("", LEGACY),
    "Numba's setting": ("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", PER_THREAD),
    "the bindings' setting": ("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", PER_THREAD),
}
"""What sets the per-thread default stream: the bindings, which recent Numba uses, do
not read Numba's own. The gate is on that stream, and the legacy one waits for it."""


def what_arrays_say(gpu: Machine, stream: Any) -> Any:
    """Return the stream in the interface of an array that is made on a stream."""
    numba = client_of("numba").library
    array = numba.device_array(COUNT, "float32", stream=stream)
    return array.__cuda_array_interface__["stream"]


def test_what_arrays_say_of_their_stream(gpu: Machine) -> None:
    """R148, R149: None or 0 for the default stream, a handle for the others."""
    numba = client_of("numba").library
    said = {
        "no stream": what_arrays_say(gpu, 0),
        "default_stream()": what_arrays_say(gpu, numba.default_stream()),
        "legacy_default_stream()": what_arrays_say(gpu, numba.legacy_default_stream()),
        "per_thread_default_stream()": what_arrays_say(
            gpu, numba.per_thread_default_stream()
        ),
        "external_stream(S)": what_arrays_say(gpu, numba.external_stream(gpu.s.handle)),
    }
    found(f"__cuda_array_interface__['stream'] of Numba: {said}")
    assert said["no stream"] is None
    assert said["default_stream()"] in (None, 0)
    assert said["legacy_default_stream()"] == LEGACY
    assert said["per_thread_default_stream()"] == PER_THREAD
    assert said["external_stream(S)"] == gpu.s.handle


def test_an_import_waits_for_the_default_stream(gpu: Machine) -> None:
    """H1, R80: though the array names no stream."""
    client_of("numba")
    assert late_write(gpu, LEGACY, gpu.s) == (NEW, True)


def test_without_order_an_import_does_not_wait(gpu: Machine) -> None:
    """R76: the control."""
    client_of("numba")
    assert late_write(gpu, LEGACY, -1) == (OLD, False)


@pytest.mark.parametrize("how", ["borrow", "drop"])
def test_numba_waits_for_what_was_queued_on_another_stream(
    gpu: Machine, how: str
) -> None:
    """H1, R150: the default stream waits back."""
    client_of("numba")
    assert early_write(gpu, how) == (OLD, True)


def test_without_order_numba_does_not_wait(gpu: Machine) -> None:
    """H1: the control."""
    client_of("numba")
    assert early_write(gpu, "none") == (NEW, False)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_default_stream_is_ordered_however_it_is_set(
    gpu: Machine, setting: str
) -> None:
    """H1, R148: in both directions, in a process that has the setting."""
    client_of("numba")
    name, default = SETTINGS[setting]
    code, out, errors = run_python(
        f"""
        import os
        if {name!r}:
            os.environ[{name!r}] = "1"
        from gpu import numba_streams
        numba_streams.main({default})
        """
    )
    assert code == 0, errors
    results = json.loads(out.splitlines()[-1])
    found(f"Numba with {setting}: {results}")
    assert results["late"] == [NEW, True]
    assert results["early"] == [OLD, True]
    assert results["early, drop"] == [OLD, True]
    assert results["late, unordered"] == [OLD, False]
    assert results["early, unordered"] == [NEW, False]


@pytest.mark.parametrize("named", [LEGACY, PER_THREAD])
def test_an_interface_names_a_default_stream(gpu: Machine, named: int) -> None:
    """R149: 1 and 2 are waited for; the legacy stream is what the kernel runs on."""
    client_of("numba")
    seen = late_write(gpu, named, gpu.s, lambda array: Named(array, named))
    assert seen == (NEW, True)


def test_none_of_another_library_is_taken_at_its_word(gpu: Machine) -> None:
    """R148: an object that is not Numba's and names no stream has no work."""
    client_of("numba")
    seen = late_write(gpu, LEGACY, gpu.s, lambda array: Named(array, None))
    assert seen == (OLD, False)


def test_numba_takes_a_tensor_that_is_ready_on_a_default_stream(gpu: Machine) -> None:
    """R149: dlx names 1, and Numba waits for it on the host."""
    numba = client_of("numba")
    address, legacy = gpu.memory[1], DefaultStream(gpu, LEGACY)
    gpu.fill(address, OLD, gpu.s)
    gpu.synchronize()
    with gpu.gate.closed(legacy), gpu.gate.opened_after(0.1):
        gpu.fill(address, NEW, legacy)
        tensor = dlx.from_pointer(
            address, (COUNT,), "float32", device="cuda:0", stream=LEGACY
        )
        assert tensor.__cuda_array_interface__["stream"] == LEGACY
        array = numba.take(tensor)
        read = gpu.read(array.device_ctypes_pointer.value, gpu.s)
        gpu.s.synchronize()
    assert one_value(read) == NEW


def test_a_copy_to_the_host_comes_after_the_default_stream(gpu: Machine) -> None:
    """R55: what Numba has queued is in it."""
    numba = client_of("numba")
    array = numba.full(OLD)
    dlx.from_dlpack(array, device="cpu")
    gpu.synchronize()
    legacy = DefaultStream(gpu, LEGACY)
    with gpu.gate.closed(legacy), gpu.gate.opened_after(0.1):
        numba.write(array, NEW)
        copied = dlx.from_dlpack(array, device="cpu")
        np.testing.assert_array_equal(copied.numpy(), np.full(COUNT, NEW))
