"""Daemon threads inside code that dlx calls, when the interpreter ends.

Before CPython 3.14 such a thread is unwound when it asks for the GIL again, and Rust
ends the process when that reaches its frames.
"""

from __future__ import annotations

from textwrap import dedent

import pytest
from support.python_process import run_python

START = """
    import os, sys, threading
    import numpy as np
    import dlx

    array = np.arange(3)
    inside, leave = threading.Event(), threading.Lock()
    leave.acquire()

    def wait():
        inside.set()
        leave.acquire()

    class Target(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data):
            wait()
            self.data = data

        @classmethod
        def __dlx_empty__(cls, *arguments):
            wait()

    class Source(dlx.ExchangeMixin):
        def __dlx_export__(self):
            wait()
            return array

    class Computed(dlx.ExchangeMixin, exchange="data"):
        @property
        def data(self):
            wait()
            return array

    class Interface:
        @property
        def __array_interface__(self):
            wait()
            return array.__array_interface__

    @dlx.bridge(np.ndarray)
    def bridged(array, name=None):
        wait()

    @dlx.launcher(give="pointer")
    def launched(array):
        wait()

    def entered():
        with dlx.borrow(Source()):
            pass
    """
END = """
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    inside.wait()

    class Last:  # Dies when no thread gets the GIL any more.
        def __del__(self, leave=leave, exists=os.path.exists):
            leave.release()
            task = f"/proc/self/task/{thread.native_id}"
            any(not exists(task) for _ in range(100_000))

    sys.last = Last()
    """
WORK = {
    "convert, in a constructor": "dlx.convert(array, Target)",
    "convert_tree, in a constructor": "dlx.convert_tree([{0: array}], Target)",
    "convert_tree, in an export": "dlx.convert_tree([Source()], np.ndarray)",
    "from_dlpack, in a property": "dlx.from_dlpack(Computed())",
    "from_dlpack, in an interface": "dlx.from_dlpack(Interface())",
    "borrow, in an export": "entered()",
    "bridge": "bridged(dlx.from_dlpack(array))",
    "bridge, with a keyword": "bridged(dlx.from_dlpack(array), name=array)",
    "launcher of pointers": "launched(array)",
    "empty, in a hook": "dlx.empty((3,), 'float32', like=Target)",
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_the_process_ends_in_peace(work: str) -> None:
    """R14: though a daemon thread never comes back."""
    code = dedent(START) + f"work = lambda: {work}\n" + dedent(END)
    assert run_python(code) == (0, "", "")
