"""Other processes that share memory, and what this one holds of it."""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

ARRAY = np.arange(6.0).reshape(2, 3)

BEGIN = """
import sys, os, pickle, socket, dlx, numpy as np
from dlx_share.sharing import Handle
out, into = sys.stdout.buffer, sys.stdin.buffer
def tell(x=None):
    pickle.dump(x, out)
    out.flush()
"""
EXPORTER = """
h = dlx.share(np.arange(6.0).reshape(2, 3), readonly=READONLY)
tell(bytes(h))
for command in into:
    tell(dlx.attach(h).tolist()[0][0])
"""


def open_files() -> int:
    """Count the descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    """Count the mappings of segments in this process."""
    return Path("/proc/self/maps").read_text().count("/memfd:dlx-")


def held() -> tuple[list[str], int, int]:
    """List the descriptors, and count the mappings and threads of this process."""
    gc.collect()
    files = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # That of the list itself.
            files.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(files), mappings(), threading.active_count()


def names() -> list[str]:
    """List the files in /dev/shm that dlx made."""
    return [name for name in os.listdir("/dev/shm") if name.startswith("dlx-")]


@contextmanager
def alone() -> Iterator[None]:
    """Keep others away: `dlx shm --clean` removes what any test has left."""
    path = Path(tempfile.gettempdir(), f"dlx-names-{os.geteuid()}")
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # for forks, too


@contextmanager
def child(code: str) -> Iterator[Any]:
    """Run Python code in another process, connected by pipes."""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: Any) -> Any:
    """Return what a child told next."""
    return pickle.load(process.stdout)


def ask(process: Any, command: Any = None) -> Any:
    """Send a line to a child, and return what it tells."""
    process.stdin.write(pickle.dumps(command) if command is not None else b"ask\n")
    process.stdin.flush()
    return told(process)


@contextmanager
def exporter(readonly: bool = False) -> Iterator[tuple[Any, bytes]]:
    """Have another process share an array; yield it and the bytes of its handle."""
    with child(EXPORTER.replace("READONLY", str(readonly))) as process:
        yield process, told(process)


def kill(process: Any) -> None:
    """End a process at once, as the kernel does when memory is short."""
    process.kill()
    process.wait()
