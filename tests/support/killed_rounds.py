"""Processes that share memory and are killed at any time; then nothing may be left.

    PYTHONPATH=tests python -m support.killed_rounds ROUNDS SEED

Each round forks a process that shares, names, sends and attaches until it is killed.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from contextlib import suppress

import dlx
import numpy as np
from dlx_share.sharing import Handle, _names

from support.shared_memory import held

NAME = f"round-{os.getpid()}-"


def work(sock: socket.socket, given: Handle, dice: random.Random) -> None:
    """Share and attach for ever; every array of n elements holds n in each."""
    kept: list[object] = []
    while True:
        n = dice.randrange(1, 5000)
        made = dlx.empty(n, "float64", shared=True, like=np)
        made[:] = n
        named = f"{NAME}{dice.randrange(4)}" if dice.random() < 0.3 else None
        with suppress(FileExistsError):
            h = dlx.share(
                made if dice.random() < 0.5 else made.copy(),
                readonly=dice.random() < 0.3,
                name=named,
            )
            kept += [
                h,
                dlx.attach(h),
                dlx.attach(given, mode=dice.choice(["r", "cow"])),
            ]
            if dice.random() < 0.5:
                sock.sendall(b"s")
                h.send(sock)
            else:
                data = bytes(h)
                sock.sendall(b"b" + len(data).to_bytes(4, "little") + data)
        if len(kept) > 12:
            dice.shuffle(kept)
            del kept[:6]


def exactly(sock: socket.socket, length: int) -> bytes:
    """Read from a stream."""
    data = b""
    while len(data) < length:
        if not (more := sock.recv(length - len(data))):
            raise EOFError
        data += more
    return data


def receive(sock: socket.socket) -> None:
    """Attach one handle, unless it went with a process that was killed."""
    kind = exactly(sock, 1)
    if kind == b"s":
        h = Handle.recv(sock)
    else:
        data = exactly(sock, int.from_bytes(exactly(sock, 4), "little"))
        try:
            h = Handle(data)
        except BufferError:
            return
    # From here on the memory is ours as well.
    t = dlx.attach(h, like=np)
    if not (t == t.shape[0]).all():
        raise AssertionError(f"other memory: {t}")


def once(given: Handle, dice: random.Random) -> None:
    """Start a process, attach what it shares, and kill it at any time."""
    one, other = socket.socketpair()
    with one, other:
        pid = os.fork()
        if pid == 0:
            try:
                one.close()
                work(other, given, dice)
            finally:
                os._exit(9)
        other.close()
        end = time.monotonic() + dice.random() * 0.015
        with suppress(EOFError):
            while time.monotonic() < end:
                receive(one)
                if dice.random() < 0.2:
                    with suppress(BufferError):
                        dlx.attach(f"shm:{NAME}{dice.randrange(4)}")
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise AssertionError(f"the process ended by itself: {status}")
        # What it had sent is in the socket still.
        one.settimeout(5)
        with suppress(EOFError, ConnectionResetError):
            while dice.random() < 0.9:
                receive(one)


def main(rounds: int, seed: int) -> None:
    """Run the rounds and compare what is left with what was there."""
    dice = random.Random(seed)
    given = dlx.share(np.full(7, 7.0))
    kept = dlx.attach(given), dlx.attach(given, mode="r")
    before, names = held(), 0
    for count in range(rounds):
        once(given, random.Random(dice.random()))
        if count % 100 == 99 or count == rounds - 1:
            if held() != before:
                raise AssertionError(f"{count}: {held()}, at first {before}")
            for entry in _names.entries():
                if entry.name.startswith(NAME):
                    names += _names.withdraw(entry.path)
            if any(entry.name.startswith(NAME) for entry in _names.entries()):
                raise AssertionError("names are left")
    del kept
    print(f"{rounds} rounds, {names} names of killed owners removed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
