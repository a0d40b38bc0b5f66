"""Ways to disturb a process, which `disturbed` makes targets of.

Nothing here imports dlx, so that reproductions of these targets run, too.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import gc
import json
import os
import pickle
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

GARBAGE = b'{"garbage": 1}\n\x00\xff' * 20


def plain() -> None:
    """Disturb nothing."""


def prints_much() -> None:
    """Print 9 MB."""
    os.write(1, b"A" * (1 << 22))
    print("B" * (1 << 22))
    sys.stderr.write("C" * (1 << 20))


def prints_forever() -> None:
    """Print without an end."""
    while True:
        os.write(1, b"A" * 65536)


def closes_descriptors() -> None:
    """Close all."""
    os.closerange(0, 1024)


def replaces_descriptors() -> None:
    """Make all lead to the same file."""
    null = os.open("/dev/null", os.O_RDWR)
    for each in set(range(64)) - {null}:
        os.dup2(null, each)


def garbage_on_descriptors() -> None:
    """Write to all that are open, and more than once, as each may be a pipe."""
    for each in range(3, 64):
        try:
            os.write(each, GARBAGE)
        except OSError:
            continue


def exits_at_once() -> None:
    """End the process as if all was well."""
    os._exit(0)


class Message(Exception):
    """An exception with a message that its function makes."""

    def __init__(self, make: Callable[[], str]) -> None:
        """Keep the function."""
        self.make = make

    def __str__(self) -> str:
        """Call it."""
        return self.make()

    __repr__ = __str__


def message_of_terminal_codes() -> None:
    """Raise what no file in UTF-8 and no terminal bears."""
    raise Message(lambda: "\ud800 \x00 \x1b[2J</script><img src=x>")


def message_of_128_megabytes() -> None:
    """Raise what takes long to be looked through."""
    raise Message(lambda: "x" * (1 << 27))


def message_that_raises() -> None:
    """Raise what cannot be shown: its message is no text."""
    raise Message(lambda: None)  # type: ignore[arg-type, return-value]


def message_that_exits() -> None:
    """Raise what ends a program that shows it."""
    raise Message(lambda: sys.exit(3))


def message_that_recurses() -> None:
    """Raise what cannot be shown: its message is its own."""
    made = Message(lambda: str(made))
    raise made


class _Nameless(type):
    """A class of classes that hides their names."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Hidden(Exception, metaclass=_Nameless):
    """An exception of such a class."""


def exception_without_a_name() -> None:
    """Raise what cannot be shown: its class does not say how it is called."""
    raise Hidden


def overwrites_shared_memory() -> None:
    """Write over all memory that other processes have, too, the journal's included."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        shared = [line for line in maps if " rw-s " in line]
    for line in shared:
        ctypes.memset(int(line.partition("-")[0], 16) + 8, 0x41, 4000)


class Stubborn(Exception):
    """An exception whose attributes cannot be set."""

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse."""
        raise TypeError("no attributes")


def exception_without_attributes() -> None:
    """Raise what lets its traceback not be taken away."""
    raise Stubborn


def recurses() -> None:
    """Recurse in Python."""
    recurses()


def recurses_in_c() -> None:
    """Recurse in C."""
    nested: list[Any] = []
    for _ in range(200_000):
        nested = [nested]
    repr(nested)


def hangs_in_c() -> None:
    """Wait in C for a signal, with all of them blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 64)) - {9, 19})
    ctypes.PyDLL(None).pause()


def raises_system_exit() -> None:
    """Raise SystemExit."""
    raise SystemExit(0)


def raises_keyboard_interrupt() -> None:
    """Raise KeyboardInterrupt."""
    raise KeyboardInterrupt


def raises_generator_exit() -> None:
    """Raise GeneratorExit."""
    raise GeneratorExit


def replaces_the_standard_library() -> None:
    """Have functions, that of ending a process included, return 7."""
    names = {
        builtins: "repr len isinstance",
        json: "dumps loads",
        os: "write read _exit waitpid kill getpid",
        pickle: "dumps",
        struct: "pack",
        sys: "exit",
        time: "monotonic perf_counter",
    }
    for module, functions in names.items():
        for name in functions.split():
            setattr(module, name, lambda *a, **k: 7)
    sys.stdout = sys.stderr = None


def replaces_numpy() -> None:
    """Have functions of NumPy that the suite uses return 7."""
    for name in ("array", "asarray"):
        setattr(np, name, lambda *a, **k: 7)


def leaves_a_process() -> None:
    """Fork a process that leaves its group, and bears a request to end."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)


def leaves_an_orphan() -> None:
    """Leave a process whose parent has ended, as a daemon does."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(1000)
    os.wait()


def leaves_a_thread() -> None:
    """Start a thread that is no daemon."""
    threading.Thread(target=time.sleep, args=(1000,)).start()


def limits_files() -> None:
    """Allow no further descriptor, and no byte in a file."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def limits_memory() -> None:
    """Allow no further memory."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))


def stops() -> None:
    """Stop the process."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stops_its_parent() -> None:
    """Stop the process that has forked this one."""
    os.kill(os.getppid(), signal.SIGSTOP)


def executes() -> None:
    """Become another program."""
    os.execv("/bin/true", ["true"])


def ends_by_a_signal_without_a_name() -> None:
    """End the process by a signal for programs' own use."""
    os.kill(os.getpid(), signal.SIGRTMIN + 6)


def waits_at_exit() -> None:
    """Have the interpreter wait before it ends."""
    atexit.register(time.sleep, 1000)


def traces() -> None:
    """Raise in each call that follows, and allow few of them."""
    sys.settrace(lambda *_: 1 / 0)  # type: ignore[arg-type]
    sys.setrecursionlimit(50)


def collects_no_garbage() -> None:
    """Switch the garbage collector off."""
    gc.disable()
    gc.freeze()


def moves() -> None:
    """Go to another directory, without an environment."""
    os.chdir("/")
    os.environ.clear()


def forgets_modules() -> None:
    """Remove all modules."""
    sys.modules.clear()


def masks_files() -> None:
    """Let no file be read that is made."""
    os.umask(0o777)


def traps_arithmetic() -> None:
    """Let inexact numbers end the process."""
    ctypes.CDLL("libm.so.6").feenableexcept(61)
    np.ones(1) / 3


def ends_its_group() -> None:
    """End its group of processes."""
    os.killpg(os.getpgrp(), signal.SIGTERM)


def take(name: str) -> Callable[..., Any]:
    """Return the import of a target, which first disturbs in this way."""

    def disturbed(x: Any, **keywords: Any) -> Any:
        globals()[name]()
        return np.from_dlpack(x, **keywords)

    return disturbed
