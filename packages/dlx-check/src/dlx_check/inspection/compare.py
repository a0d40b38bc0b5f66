"""Compares what the ways out of one object gave: R64, R128 and R125 for this object."""

from __future__ import annotations

from collections.abc import Iterator

from dlx_check.inspection.exports import Outcome
from dlx_check.inspection.names import device_name, dtype_name, flag_names
from dlx_check.inspection.records import Tensor

__all__ = ["differences"]


def differences(
    view: Outcome | None,
    by_table: Outcome | None,
    by_protocol: Outcome | None,
    device: tuple[int, int] | None,
) -> tuple[str, ...] | None:
    """Return how the exports differ, one line each; None if there was one way only.

    ``view`` is what the table lends, or its export again.
    """
    outcomes = [each for each in (view, by_table, by_protocol) if each is not None]
    found = [line for each in outcomes for line in _device(each, device)]
    if by_table is None or by_protocol is None:
        return tuple(found) or None
    if view is not None and view is not by_table:
        found += _between(view, by_table)
    return (*found, *_between(by_table, by_protocol))


def _device(outcome: Outcome, device: tuple[int, int] | None) -> Iterator[str]:
    if outcome.tensor is not None and device not in (None, outcome.tensor.device):
        stated, found = (
            device_name(device or (0, 0)),
            device_name(outcome.tensor.device),
        )
        yield f"device: __dlpack_device__ {stated}, {outcome.way} {found}"


def _between(one: Outcome, other: Outcome) -> Iterator[str]:
    for done, refused in ((one, other), (other, one)):
        if done.tensor is not None and refused.refusal is not None:
            yield f"{done.way} exports it, {refused.way} {refused.refusal}"
    if one.tensor is not None and other.tensor is not None:
        for field, mine, theirs in _fields(one.tensor, other.tensor):
            if mine != theirs:
                yield f"{field}: {one.way} {mine}, {other.way} {theirs}"
    flags = [each.managed.flags for each in (one, other) if each.managed]
    if len(flags) == 2 and flags[0] != flags[1]:
        mine, theirs = ("none" if each is None else flag_names(each) for each in flags)
        yield f"flags: {one.way} {mine}, {other.way} {theirs}"


def _fields(one: Tensor, other: Tensor) -> Iterator[tuple[str, object, object]]:
    first, second = one.data + one.byte_offset, other.data + other.byte_offset
    yield "first element", hex(first), hex(second)
    yield "ndim", one.ndim, other.ndim
    yield "shape", one.shape, other.shape
    yield "strides", one.strides, other.strides
    yield "dtype", dtype_name(one.dtype), dtype_name(other.dtype)
    yield "device", device_name(one.device), device_name(other.device)
