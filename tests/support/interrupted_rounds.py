"""Sharing that a signal handler interrupts at any time; then nothing may be left.

    PYTHONPATH=tests python -m support.interrupted_rounds ROUNDS SEED

Each round shares, names, sends and attaches until a timer's handler raises, as Ctrl-C
does.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import dlx
import numpy as np
from dlx_share.sharing import Handle, _names

from support.shared_memory import held, names

NAME = f"interrupted-{os.getpid()}-"
ARRAY = np.arange(5000)
FILE = np.__file__


class Stop(BaseException):
    """What the handler raises."""


def copies() -> None:
    """Share a copy, and attach it in each mode."""
    with dlx.share(ARRAY) as h:
        dlx.attach(h)
        dlx.attach(h, mode="r")
        dlx.attach(bytes(h), mode="cow")
    h = dlx.share(ARRAY, readonly=True)
    dlx.attach(bytes(h), like=np)


def in_place() -> None:
    """Share memory that was made for it."""
    x = dlx.empty(5, "float64", shared=True, like=np)
    h = dlx.share(x, copy=False)
    other = dlx.share(x[1:], copy=False, readonly=True)
    dlx.attach(h)
    dlx.attach(other)
    h.close()


def names_one() -> None:
    """Name memory, attach it by the name, and list the names."""
    with suppress(FileExistsError, BufferError):
        h = dlx.share(ARRAY, name=f"{NAME}0")
        dlx.attach(f"shm:{NAME}0")
        list(_names.entries())
        h.close()


# Made once: Python's `socketpair` has numbers of descriptors in no owner's hands.
PAIR = socket.socketpair()


def sends() -> None:
    """Send a handle through a socket, and receive one that may lack its beginning."""
    one, other = PAIR
    other.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            other.recv(65536)
    other.settimeout(5)
    with dlx.share(ARRAY) as h:
        h.send(one)
        with suppress(BufferError), Handle.recv(other) as back:
            dlx.attach(back)


def files() -> None:
    """Share a file that is mapped."""
    h = dlx.share(np.memmap(FILE, "u1", "r"), copy=False)
    dlx.attach(h)
    dlx.attach(bytes(h), paths=True)


WORK: list[Callable[[], None]] = [copies, in_place, names_one, sends]


def left() -> tuple[object, list[str]]:
    """Return what this process holds, and its names."""
    return held(), [name for name in names() if NAME in name]


def once(work: Callable[[], None], after: float) -> bool:
    """Do some work until the handler raises; return whether it did."""
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return False


def stop(*_: object) -> None:
    """Raise, as Python's handler of SIGINT does."""
    raise Stop


def main(rounds: int, seed: int) -> None:
    """Run the rounds and compare what is left with what was there."""
    dice, stops = random.Random(seed), 0
    every = [*WORK, files]
    for work in every:
        work()
    before = left()
    signal.signal(signal.SIGALRM, stop)
    # What is raised while an object ends goes there, and stops nothing.
    sys.unraisablehook = lambda _: None
    for count in range(rounds):
        with suppress(Stop):
            stops += once(dice.choice(every), dice.random() * 1e-3 + 1e-6)
        if (count % 100 == 99 or count == rounds - 1) and left() != before:
            raise AssertionError(f"{count}: {left()}, at first {before}")
    print(f"{rounds} rounds, {stops} interrupted")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
