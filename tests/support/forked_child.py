"""Work in a forked child, whose end is waited for, but not for ever."""

from __future__ import annotations

import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable

LONGEST = 60.0
"""Seconds after which a child is said to hang."""


def in_child(body: Callable[[], object]) -> str:
    """Run ``body`` in a child; return "" or what went wrong there."""
    receive, send = os.pipe()
    with warnings.catch_warnings():
        # CPython and JAX warn of threads.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(receive)
            body()
            status = 0
        except BaseException:
            os.write(send, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(send)
    end = time.monotonic() + LONGEST
    with os.fdopen(receive, "rb") as pipe:
        while not (found := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "the child hangs"
            time.sleep(0.002)
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(found[1])
    return said or (f"the child ended with {status}" if status else "")
