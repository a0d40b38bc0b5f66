"""Contexts that end, and contexts that the driver makes beside the primary one.

Each program has a process of its own.
"""

from __future__ import annotations

from gpu.child import ask_child
from gpu.clients import client_of
from gpu.machine import NEW, OLD, Machine
from gpu.report import found


def test_streams_are_ordered_after_the_device_is_reset(gpu: Machine) -> None:
    """H5: events that dlx kept are gone with the context, and it makes others."""
    said = ask_child("contexts", "reset")
    found(f"before and after cuDevicePrimaryCtxReset: {said}")
    assert said["before"] == [NEW, True]
    assert said["after"] == [[NEW, True]] * 3
    assert said["unordered"] == [OLD, False]


def test_a_stream_of_another_context_is_ordered_with_torch(gpu: Machine) -> None:
    """H7, H8: PyCUDA's `cuCtxCreate`; torch is on the primary one's default stream.

    The controls, without order, show that the two contexts run side by side.
    """
    client_of("torch")
    said = ask_child("contexts", "created", library="torch")
    found(f"torch's default stream, and a stream of another context: {said}")
    expected = {"to": True, "back": True}
    assert said == expected | {"to, unordered": False, "back, unordered": False}
