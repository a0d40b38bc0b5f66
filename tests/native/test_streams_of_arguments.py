"""Streams of `dlpack_exchange.h`: the extension `streams` writes down what is asked.

The classes `0` and `1` have tables, and work on the streams 0x70 and 0x80; `2` has
`__dlpack__` alone.
"""

from __future__ import annotations

from typing import Any

import pytest


def test_one_library_is_not_ordered(streams: Any) -> None:
    status, log, _ = streams.run([streams.fake(0), streams.fake(0)], None)
    assert (status, log) == (0, "kernel(112,0) ")
