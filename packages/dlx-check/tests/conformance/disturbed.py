"""Targets of NumPy that disturb their process: `conformance.disturbed:NAME`.

Where NAME is a function of `disturbing`, it is called before each import of a tensor.
The others are below, and disturb while the target is described.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from dlx_check import Target

from conformance import disturbing


def _disturbed(name: str) -> Target:
    return Target(
        name="disturbed",
        imports="from conformance import disturbing",
        make="np.array",
        take=f"disturbing.take({name!r})",
        show="np.array",
        address="lambda x: x.ctypes.data",
        view="lambda x: x[1:]",
        timeout=1.0,
    )


def __getattr__(name: str) -> Callable[[], Target]:
    getattr(disturbing, name)
    return lambda: _disturbed(name)


def names_itself_badly() -> Target:
    """Have a name that is no part of a path, and no text for a terminal."""
    return Target(name="../../<b>x\n\x1b[31m|`", imports="")


def exits_while_described() -> Target:
    """End the process as if all was well."""
    os._exit(0)


def raises_what_exits_while_described() -> Target:
    """Raise what cannot be shown."""
    disturbing.message_that_exits()
    raise AssertionError


def sleeps_while_described() -> Target:
    """Never return."""
    time.sleep(1000)
    raise AssertionError


def returns_a_number() -> Any:
    """Return no target."""
    return 7


def prints_while_described() -> Target:
    """Print what the suite does not show."""
    disturbing.prints_much()
    return _disturbed("plain")


def garbage_while_described() -> Target:
    """Write to all descriptors that are open, those of the suite among them."""
    disturbing.garbage_on_descriptors()
    return _disturbed("plain")


def endless_garbage_while_described() -> Target:
    """Write to them without an end, and no line."""
    while True:
        for each in range(3, 16):
            try:
                os.write(each, b"garbage" * 1000)
            except OSError:
                continue


def drops_the_status_of_children() -> Target:
    """Let nobody learn how a child of this process ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return _disturbed("plain")


def leaves_a_process_while_described() -> Target:
    """Fork a process that leaves its group."""
    disturbing.leaves_a_process()
    return _disturbed("plain")
