"""Who calls dlx: the Python frames, and the library whose C code calls."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int, c_void_p
from functools import cache, lru_cache
from types import FrameType
from typing import Any

from dlx_check.core import dlx
from dlx_check.memory import nearest
from dlx_check.tracing.records import Caller

__all__ = ["callers", "calling_library", "module_of"]

# Between dlx and the frame that calls it; a deeper library is taken for the program.
_DEPTH = 32
_OWN = ("dlx", "dlx_check", "dlx_share")
_INSTALLED = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages")
)


def callers(frame: FrameType | None, count: int) -> tuple[Caller, ...]:
    """Return up to ``count`` frames from ``frame`` outwards, without those of dlx."""
    found: list[Caller] = []
    while frame is not None and len(found) < count:
        if found or not _is_own(frame):
            code = frame.f_code
            found.append(Caller(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(found)


def module_of(frame: FrameType | None) -> str | None:
    """Return the module of the nearest frame outside of dlx, if it was installed.

    None for a program's own module, and for those of Python.
    """
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    if frame is None:
        return None
    name = frame.f_globals.get("__name__")
    installed = any(part in frame.f_code.co_filename for part in _INSTALLED)
    return name if installed and isinstance(name, str) else None


def _is_own(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _OWN


def calling_library() -> str | None:
    """Return the file of the C code that called dlx; None if a Python frame did.

    Between dlx and its caller are functions of the interpreter, but not its loop:
    the loop there is that of the Python frame which called.
    """
    interpreter, loop = _loop()
    if loop is None:
        return None
    own, inside = dlx._core.__file__, False
    for library, start in _stack():
        if library is None:
            continue
        if library == own:
            inside = True
        elif not inside:
            continue  # what this function itself has called
        elif library != interpreter:
            return _short(library)
        elif start == loop:
            return None
    return None


def _short(library: str) -> str:
    """Return the path within its installation, without what names the platform."""
    for part in _INSTALLED:
        library = library.rpartition(part)[2]
    folder, name = os.path.split(library)
    if os.path.isabs(folder):
        return name
    return os.path.join(folder, name.partition(".")[0])


# No library is unloaded while its code calls dlx.
_nearest = lru_cache(maxsize=4096)(nearest)


def _stack() -> list[tuple[str | None, int | None]]:
    """Return the file and the nearest start of each function that is being called."""
    frames = (c_void_p * _DEPTH)()
    try:
        count = _process().backtrace(byref(frames), _DEPTH)
        return [_nearest(address or 0) for address in frames[:count]]
    except ctypes.ArgumentError as error:
        raise RecursionError from error  # what it says of an exhausted stack


@cache
def _process() -> Any:
    process = ctypes.CDLL(None)
    process.backtrace.argtypes = (c_void_p, c_int)
    process.backtrace.restype = c_int
    return process


@cache
def _loop() -> tuple[str | None, int | None]:
    """Return the file of the interpreter and the start of its loop, if it can be seen.

    musl has no ``backtrace``; and where each instruction is a function, no frame is
    that of the loop.
    """
    try:
        loop = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, c_void_p).value
        found = nearest(loop or 0)
        return found if found in _stack() else (None, None)
    except AttributeError:
        return None, None
