"""Sixteen arguments of three libraries on three streams, in each of eight threads."""

from __future__ import annotations

import pytest

from gpu.clients import client_of
from gpu.machine import Machine
from gpu.random_writers import ARGUMENTS, ROUNDS, THREADS, wrong_numbers
from gpu.report import found

PAIR, ALL = ("torch", "cupy"), ("torch", "cupy", "numba")
each_set = pytest.mark.parametrize("libraries", [PAIR, ALL], ids=["two", "three"])


def wrong(gpu: Machine, libraries: tuple[str, ...], *, is_ordered: bool) -> int:
    """Count the arrays that kernels have read wrong."""
    clients = [[client_of(name) for name in libraries] for _ in range(THREADS)]
    count = wrong_numbers(gpu, clients, is_ordered)
    total = ARGUMENTS * ROUNDS * THREADS
    found(f"random writers, {libraries}, {is_ordered=}: {count} of {total} wrong")
    return count


@each_set
def test_no_kernel_reads_a_wrong_number(
    gpu: Machine, libraries: tuple[str, ...]
) -> None:
    """H1, H2, H8: what each library wrote before the block, and not what it did after.

    The block is on the stream of one of the libraries, or on one of its own.
    """
    assert wrong(gpu, libraries, is_ordered=True) == 0


@each_set
def test_without_order_kernels_read_wrong_numbers(
    gpu: Machine, libraries: tuple[str, ...]
) -> None:
    """H1, H2: the control."""
    assert wrong(gpu, libraries, is_ordered=False) > 0
