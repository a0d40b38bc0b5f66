"""Sharing that is interrupted, by what a signal handler raises, at each bytecode."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dlx_share
import pytest
from support.interrupted_rounds import WORK, Stop, left

HERE = str(Path(dlx_share.__file__).parent) + os.sep


def interrupted(work: Callable[[], None], place: int) -> bool:
    """Raise before one bytecode of dlx-share; return whether there are as many."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            seen += 1
            if seen == place:
                sys.settrace(None)
                raise Stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Stop:
        pass
    finally:
        sys.settrace(before)
    return seen >= place


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", WORK)
def test_an_interrupt_at_any_bytecode_leaves_nothing(work: Callable[[], None]) -> None:
    """README.md, Sharing: no descriptor, mapping or name."""
    work()
    before, place = left(), 1
    gc.disable()
    try:
        while interrupted(work, place):
            place += 1
    finally:
        gc.enable()
    assert place > 100
    assert left() == before
