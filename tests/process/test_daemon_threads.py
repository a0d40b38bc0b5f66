"""Daemon threads inside code that dlx calls, when the interpreter ends.

Before CPython 3.14 such a thread is unwound when it asks for the GIL again, and Rust
ends the process when that reaches its frames.
"""

from __future__ import annotations

from textwrap import dedent

import pytest
from support.callback_steps import STEPS, calls
from support.python_process import run_python
from support.simulated_driver import library_path

pytestmark = pytest.mark.slow

START = """
    import os, sys, threading, weakref
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

    class Owner:
        def __del__(self):
            wait()

    class Ended(AttributeError):
        def __del__(self):
            wait()

    class Missing:
        # It has no such attribute, but another one.
        __array_interface__ = array.__array_interface__

        @property
        def __dlpack__(self):
            raise Ended

    class Answers:
        # Its answer is no capsule.
        def __init__(self, device=(1, 0)):
            self.device = device

        def __dlpack_device__(self):
            return self.device

        def __dlpack__(self, **keywords):
            return Owner()

    class Number:
        def __index__(self):
            wait()

    class NamedByCode(type):
        @property
        def __module__(self):
            wait()

    class Named(metaclass=NamedByCode):
        pass

    class Unshown:
        def __repr__(self):
            wait()

    def pointed(owner):
        return dlx.from_pointer(array.ctypes.data, (3,), "int64", owner=owner)

    def deleted():
        # Held by the capsule, whose destructor deletes what nobody took.
        pointed(Owner()).__dlpack__()

    def watched():
        tensor = dlx.from_dlpack(array)
        weak = weakref.ref(tensor, lambda _: wait())
        del tensor

    def traced():
        from dlx_check.tracing import session
        session.calling_library = wait
        with dlx.trace():
            dlx.from_dlpack(array)

    def shared():
        from dlx_share import sharing
        sharing.make = lambda *_: wait()
        dlx.empty((3,), "int8", shared=True)
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
    "empty, of shared memory": "shared()",
    "the end of an owner": "pointed(Owner())",
    "the end of an export": "deleted()",
    "the end of an answer": "dlx.from_dlpack(Answers())",
    "the end of an exception": "dlx.from_dlpack(Missing())",
    "an int, in a device": "dlx.from_dlpack(Answers(device=(Number(), 0)))",
    "an int, in an argument": "dlx.from_pointer(0, (Number(),), 'int8')",
    "an index": "dlx.from_dlpack(array)[Number():]",
    "the name of a class": "dlx.from_dlpack(Named())",
    "a weak reference to a tensor": "watched()",
    "the hook of a trace": "traced()",
    "the text of an error": "dlx.from_pointer(0, Unshown(), 'int8')",
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_the_process_ends_in_peace(work: str) -> None:
    """R14: though a daemon thread never comes back."""
    code = dedent(START) + f"work = lambda: {work}\n" + dedent(END)
    assert run_python(code) == (0, "", "")


@pytest.mark.parametrize("step", STEPS)
def test_the_process_ends_in_peace_in_any_call(step: str) -> None:
    """R14: none of the calls of user code comes back."""
    for number, name in enumerate(calls(STEPS[step])):
        code = f"""
        import os, sys, threading
        from support.callback_steps import STEPS, calls, happening

        inside, leave = threading.Event(), threading.Lock()
        leave.acquire()
        run = STEPS[{step!r}]
        calls(run)

        def wait():
            inside.set()
            leave.acquire()

        def work():
            with happening(wait, {number}):
                run()
        """
        assert run_python(dedent(code) + dedent(END)) == (0, "", ""), name


def test_the_process_ends_in_peace_while_a_thread_waits_for_a_stream() -> None:
    """R14: the wait ends when no thread gets the GIL any more."""
    code = f"""
    import os
    os.environ["DLX_LIBCUDA"] = {str(library_path())!r}
    """
    code += """
    import ctypes, sys, threading
    import dlx, numpy as np
    from support.simulated_driver import simulation

    libc = ctypes.CDLL(None)
    held = ctypes.create_string_buffer(64)  # A sem_t.
    libc.sem_init(held, 0, 0)

    class Inside:
        def wait(self):
            while not any("Synchronize" in name for name in sim.called()):
                pass

    class Leave:
        def release(self, post=libc.sem_post):
            post(held)

    sim = simulation()
    sim.start()
    s = sim.stream()
    device = dlx.from_dlpack(np.arange(3.0), device="cuda:0", stream=s)
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    sim.call("cuLaunchHostFunc", s.handle, wait, ctypes.addressof(held))
    sim.clear_journal()
    inside, leave = Inside(), Leave()

    def work():
        device.to(device="cpu")
    """
    assert run_python(dedent(code) + dedent(END)) == (0, "", "")
