"""Streams of `dlpack_exchange.h`: the extension `streams` writes down what is asked.

`first` and `second` have tables, and work on the streams 0x70 and 0x80; `third` has
`__dlpack__` alone. All are on cuda:0, as far as they say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

FIRST, SECOND, OTHER = 0x70, 0x80, 0x90


def launched(streams: Any, xs: list[Any], on: int | None, write: int = 0) -> list[str]:
    """Launch a kernel over these, and give what was asked, events without numbers."""
    status, log, _ = streams.run(xs, on, write)
    assert xs == []  # the kernel's arguments are gone before it is done
    assert status == ("await" in log.partition("kernel")[0])
    numbers: dict[str, str] = {}
    lines = []
    for line in log.split():
        name, first, second = line.rstrip(")").replace("(", ",").split(",")
        match name:
            case "record":
                event = numbers.setdefault(first, chr(ord("a") + len(numbers)))
                lines.append(f"{event} is recorded on {int(second):#x}")
            case "await":
                lines.append(f"{int(first):#x} awaits {numbers[second]}")
            case _:
                lines.append(f"{name} {int(first):#x}")
    return lines


def test_one_library_decides_on_the_stream(streams: Any) -> None:
    """R141, R143: its own needs no event."""
    xs = [streams.fake(0), streams.fake(0)]
    assert launched(streams, xs, None) == ["kernel 0x70"]


def test_the_stream_of_the_caller_may_be_the_librarys(streams: Any) -> None:
    """R141."""
    assert launched(streams, [streams.fake(0)], FIRST) == ["kernel 0x70"]


def test_a_second_library_is_waited_for_and_waits(streams: Any) -> None:
    """R80, R150: before the kernel, and after it."""
    assert launched(streams, [streams.fake(0), streams.fake(1)], None) == [
        "a is recorded on 0x80",
        "0x70 awaits a",
        "kernel 0x70",
        "b is recorded on 0x70",
        "0x80 awaits b",
    ]


def test_the_stream_of_the_caller_is_ordered_with_every_library(streams: Any) -> None:
    """R80, R150."""
    assert launched(streams, [streams.fake(0), streams.fake(1)], OTHER) == [
        "a is recorded on 0x70",
        "0x90 awaits a",
        "b is recorded on 0x80",
        "0x90 awaits b",
        "kernel 0x90",
        "c is recorded on 0x90",
        "0x70 awaits c",
        "d is recorded on 0x90",
        "0x80 awaits d",
    ]


@pytest.mark.parametrize("before", [True, False])
def test_a_library_without_a_table_is_asked_for_the_stream(
    streams: Any, before: bool
) -> None:
    """R83: that of the library with a table, wherever that stands."""
    xs = [streams.fake(2), streams.fake(0)][:: 1 if before else -1]
    assert launched(streams, xs, None) == [
        "order 0x70",
        "kernel 0x70",
        "a is recorded on 0x70",
    ]


def test_without_any_table_the_default_stream_is_asked_for(streams: Any) -> None:
    """R84: as 1."""
    assert launched(streams, [streams.fake(2)], None)[:2] == ["order 0x1", "kernel 0x0"]


def test_host_memory_has_no_stream(streams: Any) -> None:
    """R71."""
    xs = [np.ones(3), streams.fake(0)]
    assert launched(streams, xs, None) == ["kernel 0x70"]


def test_what_is_deleted_waits_for_the_kernel(streams: Any) -> None:
    """R150: the library may reuse the memory as soon as it is."""
    *_, deleted = streams.run([streams.fake(2)], OTHER)
    assert streams.collect(0) == (deleted, 1)
    assert streams.collect(10**6) == (deleted + 1, 0)


def test_no_more_than_so_many_wait(streams: Any) -> None:
    """DLX_LATE is 4 here: then the oldest is waited for."""
    logs = [streams.run([streams.fake(2)], OTHER)[1] for _ in range(6)]
    assert ["wait" in log for log in logs] == [False] * 4 + [True] * 2
    assert streams.collect(10**6)[1] == 0


def test_a_driver_that_fails_keeps_the_memory(streams: Any) -> None:
    """And never frees it too early."""
    deleted, _ = streams.collect(0, 1)
    with pytest.raises(RuntimeError, match="no event was recorded; memory is kept"):
        streams.run([streams.fake(2)], OTHER)
    assert streams.collect(10**6) == (deleted, 0)


def test_memory_of_work_that_cannot_be_waited_for_is_kept(streams: Any) -> None:
    """Whether the kernel still runs is not known."""
    deleted, _ = streams.collect(0, 0, 1)
    for _ in range(5):
        streams.run([streams.fake(2)], OTHER)
    assert streams.collect(10**6, 0, 0) == (deleted + 4, 0)


@pytest.mark.parametrize("kinds", [(0, 0), (2, 0), (2, 2)])
def test_arguments_on_two_devices_are_refused(
    streams: Any, kinds: tuple[int, int]
) -> None:
    """All are released."""
    deleted, _ = streams.collect(0)
    xs = [streams.fake(kinds[0], 0), streams.fake(kinds[1], 1)]
    with pytest.raises(
        BufferError, match=r"^it is on cuda:\d, and the work on cuda:\d$"
    ):
        streams.run(xs, None)
    del xs
    assert streams.collect(10**6) == (deleted + 2, 0)


@pytest.mark.parametrize(
    ("on", "found"),
    [(None, (0, FIRST, 0)), (FIRST, (0, FIRST, 0)), (OTHER, (1, OTHER, FIRST))],
)
def test_an_import_says_which_stream_is_to_be_waited_for(
    streams: Any, on: int | None, found: tuple[int, int, int]
) -> None:
    """R80, R141: it waits for none itself."""
    assert streams.keep(streams.fake(0), on) == found


def test_an_array_elsewhere_is_not_asked_for_the_stream(streams: Any) -> None:
    """R86: the number means nothing on its device."""

    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 1)

    with pytest.raises(BufferError, match="it is on cuda:1, and the work on cuda:0"):
        streams.run([Elsewhere()], OTHER)


def test_an_import_to_another_device_is_refused(streams: Any) -> None:
    """R86: a stream is of one device."""
    with pytest.raises(BufferError, match="it is on cuda:1, and the work on cuda:0"):
        streams.keep(streams.fake(0, 1), OTHER)
    assert streams.keep(streams.fake(0, 1), None) == (0, FIRST, 0)
