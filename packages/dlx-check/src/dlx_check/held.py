"""Processes and files that are ended and closed whatever interrupts who holds them."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

__all__ = ["Held", "signal_name"]

T = TypeVar("T")


class Held(Generic[T]):
    """What a context manager gives; it is entered and left on a thread of its own.

    The handler of a signal runs on the main thread, behind any bytecode. What it raises
    there can part a number, of a descriptor or a process, from the variable that would
    have held it, or cut off what cleans up. No handler runs on another thread, and a
    socket, whose deallocation closes it, tells that one when this object has gone.
    """

    def __init__(self, manager: Callable[[], AbstractContextManager[T]]) -> None:
        """Enter what `manager` makes; raise what it raises."""
        told: SimpleQueue[Any] = SimpleQueue()
        # A thread keeps its arguments until it ends.
        given = [manager, told]
        self._thread = Thread(target=_hold, args=(given,), daemon=True)
        self._thread.start()
        error, self._line, self._value = told.get()
        if error is not None:
            raise error

    def __enter__(self) -> T:
        """Return what the context manager gave."""
        value: T = self._value
        return value

    def __exit__(self, *_: object) -> None:
        """Leave the context manager, and wait until it has been left."""
        # Not by closing alone: a process that was forked meanwhile has it, too.
        self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()
        self._thread.join()


def _hold(given: list[Any]) -> None:
    manager, told = given
    given.clear()
    with ExitStack() as held:
        try:
            value = held.enter_context(manager())
            here, there = socket.socketpair()
            held.enter_context(here)
        except BaseException as error:
            told.put((error, None, None))
            return
        told.put((None, there, value))
        # What the other thread lets go of must not be kept by this one.
        del manager, told, there, value
        here.recv(1)


def signal_name(number: int) -> str:
    """Return the name of a signal, also of one that has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
