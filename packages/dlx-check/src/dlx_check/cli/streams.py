"""The standard streams: closed ones, a full disk, a reader that has gone."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

__all__ = ["Refused", "open_closed", "output"]


def open_closed() -> None:
    """Open what is closed of the standard streams: a pipe would get its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


class Refused(Exception):
    """Standard output did not take what was written; the cause says why."""


def output() -> TextIO:
    """Return standard output; what it does not take is `Refused`."""
    return cast(TextIO, _Output(sys.stdout))


class _Output:
    """A stream whose errors are not taken for those of a command."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._errors():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._errors():
            self._stream.flush()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What is left goes nowhere: Python flushes again when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            raise Refused from error
