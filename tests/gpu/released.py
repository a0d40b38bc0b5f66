"""Memory that dlx gives back later."""

from __future__ import annotations

import time

from dlx._core import deferred

from gpu.machine import Machine

LONGEST_S = 20
"""Seconds within which dlx's thread gives memory back; it is said how many it takes."""


def settle(gpu: Machine) -> float:
    """Let all work end, and wait until dlx has given all back; return the seconds."""
    gpu.synchronize()
    begin = time.perf_counter()
    while deferred():
        assert time.perf_counter() - begin < LONGEST_S, "the memory was not given back"
        time.sleep(0.001)
    return time.perf_counter() - begin
