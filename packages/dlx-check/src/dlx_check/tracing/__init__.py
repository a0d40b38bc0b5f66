"""``dlx.trace`` and ``dlx.live``: who holds what memory, since when. Loaded on use."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from typing import TextIO

from dlx_check.tracing.records import Caller, Held
from dlx_check.tracing.session import Trace, active, is_free

__all__ = ["Caller", "Held", "Trace", "live", "start", "trace"]


def trace(*, frames: int = 8, events: str | None = None) -> Trace:
    """Return a trace that is not on yet; see `dlx.trace`."""
    return Trace(frames, events)


def live() -> list[Held]:
    """Return what is held now; see `dlx.live`."""
    traces = active()
    if not traces:
        raise RuntimeError(
            "nothing is traced; use `with dlx.trace():` or set DLX_TRACE=1 before "
            "dlx is imported"
        )
    return traces[0].live


def start(setting: str) -> None:
    """Trace until the process exits, as the variable ``DLX_TRACE`` says.

    What it says wrongly is a warning: a variable to look at a program never stops it.
    """
    frames, events = 8, None
    word = setting.strip().lower()
    if setting.startswith("json:"):
        events = setting.removeprefix("json:")
    elif word.isdecimal() and int(word) > 1:
        frames = int(word)
    elif word in ("no", "off", "false") or not word.strip("0"):
        return
    elif word not in ("1", "yes", "on", "true"):
        _warn(f"is {setting!r}; expected 1, a number of frames, or json:FILE")
        return
    try:
        traced = trace(frames=frames, events=events).__enter__()
    except (OSError, RuntimeError) as error:
        _warn(f"is {setting!r}: {error}")
        return
    atexit.register(_report, traced, os.getpid(), sys.stderr)


def _warn(message: str) -> None:
    message = f"DLX_TRACE {message}; nothing is traced"
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _report(traced: Trace, process: int, stream: TextIO) -> None:
    # A child that was forked holds copies of what its parent reports.
    if os.getpid() == process and is_free():
        traced.__exit__()
        print(f"dlx trace: {traced}", file=stream)
