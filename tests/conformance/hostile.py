"""Targets that end, stop or confuse the process that checks them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from dlx.check import Target


def _numpy(take: str, **fields: Any) -> Target:
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        make="np.array",
        take=f"hostile.{take}",
        show="np.array",
        address="lambda x: x.ctypes.data",
        view="lambda x: x[1:]",
        timeout=1.0,
        **fields,
    )


def take(x: Any, **keywords: Any) -> Any:
    """Import as NumPy does."""
    import numpy as np

    return np.from_dlpack(x, **keywords)


def _once(x: Any) -> bool:
    """Return whether this is the import of which the tests speak."""
    return bool(x.spec.null == "deleter")


def aborts(x: Any, **keywords: Any) -> Any:
    """Abort."""
    if _once(x):
        os.abort()
    return take(x, **keywords)


def hangs(x: Any, **keywords: Any) -> Any:
    """Never return."""
    if _once(x):
        time.sleep(1000)
    return take(x, **keywords)


def closes(x: Any, **keywords: Any) -> Any:
    """Close every descriptor, those of the suite included."""
    os.closerange(0, 1024)
    return take(x, **keywords)


def forks(x: Any, **keywords: Any) -> Any:
    """Fork, and let both processes return."""
    os.fork()
    return take(x, **keywords)


def leaves(x: Any, **keywords: Any) -> Any:
    """End the process as if all was well."""
    if _once(x):
        os._exit(0)
    return take(x, **keywords)


def exits(x: Any, **keywords: Any) -> Any:
    """Raise SystemExit."""
    if _once(x):
        sys.exit(0)
    return take(x, **keywords)


def kills(x: Any, **keywords: Any) -> Any:
    """Kill its own process."""
    if _once(x):
        os.kill(os.getpid(), signal.SIGKILL)
    return take(x, **keywords)


def target_of(name: str) -> Any:
    """Return the factory of a target."""
    return lambda: _numpy(name)


aborting, hanging, closing = (
    target_of("aborts"),
    target_of("hangs"),
    target_of("closes"),
)
forking, leaving, exiting = target_of("forks"), target_of("leaves"), target_of("exits")
killing = target_of("kills")


def raising() -> Target:
    """Raise."""
    raise RuntimeError("on purpose")


def printing() -> Target:
    """Print on standard output, and start a thread."""
    print("noise")
    threading.Thread(target=time.sleep, args=(0.1,), daemon=True).start()
    return _numpy("take")


def ending() -> Target:
    """End the process."""
    os._exit(3)


def wrong() -> Any:
    """Return something else."""
    return 7


def only_beside_dlx() -> Target:
    """Return a target whose deviation no reproduction shows."""
    take = "lambda x: np.from_dlpack(x) if 'dlx' in sys.modules else x.missing"
    return Target(
        name="hostile",
        imports="import sys",
        make="np.array",
        take=take,
        show="np.array",
        address="lambda x: x.ctypes.data",
    )


class Raising:
    """What says where it is, and exports nothing."""

    def __init__(self, array: Any) -> None:
        """Keep the array."""
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return 1, 0

    def __dlpack__(self, **_keywords: Any) -> Any:
        """Raise."""
        raise RuntimeError("on purpose")


def raising_producer() -> Target:
    """Return a target whose tensors raise when they are exported."""
    return Target(
        name="hostile",
        imports="from conformance import hostile",
        make="hostile.Raising",
        show="lambda x: x.array",
        type="hostile.Raising",
    )
