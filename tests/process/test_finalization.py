"""The end of the interpreter, while somebody still holds a tensor."""

from __future__ import annotations

from textwrap import dedent

import pytest
from support.python_process import run_python

pytestmark = pytest.mark.slow

INSIDE = """
        array = np.arange(3)
        inside, leave = threading.Event(), threading.Lock()
        leave.acquire()
        class Producer:
            def __dlpack__(self, **keywords):
                inside.set()
                leave.acquire()
                return array.__dlpack__(**keywords)
            def __dlpack_device__(self):
                return 1, 0
        for _ in range({before}):
            leave.release()
            dlx.from_dlpack(Producer())
        inside.clear()
        thread = threading.Thread(
            target=dlx.from_dlpack, args=(Producer(),), daemon=True
        )
        thread.start()
        inside.wait()
        class Last:  # Dies when no thread gets the GIL any more.
            def __del__(self, leave=leave, exists=os.path.exists):
                leave.release()
                task = f"/proc/self/task/{{thread.native_id}}"
                any(not exists(task) for _ in range(100_000))
        sys.last = Last()
        """

ENDS = {
    "in globals": """
        kept = [
            tensor, np.from_dlpack(tensor), memoryview(tensor), tensor.__dlpack__(),
            tensor.to(copy=True), dlx.from_dlpack(np.arange(3)), dlx.DeviceType.CPU,
            dlx.from_dlpack(bytearray(3)),
        ]
        """,
    "in a cycle": "owner.tensor = tensor",
    "in atexit, let go before dlx ends": "atexit.register([tensor].clear)",
    "in atexit, let go after dlx ended": "first.append(tensor)",
    "in atexit, of a buffer": "first.append(dlx.from_dlpack(bytearray(3)))",
    "in a NumPy array": "first.append(np.from_dlpack(tensor))",
    "in a tensor of tvm_ffi": """
        import tvm_ffi
        kept = tvm_ffi.from_dlpack(tensor)
        """,
    "in tvm_ffi's own registry": """
        import tvm_ffi
        kept = tvm_ffi.from_dlpack(tensor)
        tvm_ffi.register_global_func("dlx.kept", lambda: kept)
        """,
    "in a daemon thread": """
        started = threading.Event()
        def hold(tensor):
            started.set()
            threading.Event().wait()
        threading.Thread(target=hold, args=(tensor,), daemon=True).start()
        started.wait()
        """,
    "in daemon threads that let go": """
        started = threading.Event()
        def turn_over():
            while True:
                dlx.from_pointer(8, (1,), "int8", owner=Owner()).__dlpack__()
                tensor.to(copy=True)
                started.set()
        for _ in range(4):
            threading.Thread(target=turn_over, daemon=True).start()
        started.wait()
        """,
    "in a finalizer that uses dlx": """
        class Last:
            def __del__(self, dlx=dlx, array=np.arange(3)):
                memoryview(dlx.from_dlpack(dlx.from_dlpack(array).__dlpack__()))
        sys.last = Last()
        """,
    "in a finalizer that imports after the modules are gone": """
        class Last:
            def __del__(self, get=dlx.from_dlpack, x=np.arange(3).__dlpack__()):
                get(x)
        sys.last = Last()
        """,
    "in a daemon thread that is inside a producer": INSIDE.format(before=0),
    "in a daemon thread that is inside a known producer": INSIDE.format(before=65),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_interpreter_ends_in_peace(end: str) -> None:
    """R14, R97: whoever holds a tensor then."""
    code = """
        import atexit, os, sys, threading
        import numpy as np
        first = []
        atexit.register(first.clear)  # Runs after what dlx registers.
        import dlx

        class Owner:
            pass

        owner = Owner()
        owner.memory = np.arange(3)
        tensor = dlx.from_pointer(owner.memory.ctypes.data, (3,), "int64", owner=owner)
        """
    assert run_python(dedent(code) + dedent(end)) == (0, "", "")


def test_owners_are_left_alone_after_the_end() -> None:
    """R14: after the end that dlx was told of."""
    code = """
        import atexit
        first = []
        atexit.register(first.clear)  # Runs after what dlx registers.
        import dlx
        from support.fake_buffer import Exporter

        class Owner:
            def __del__(self):
                print("let go")

        class Buffer(Exporter):
            def release(self):
                print("let go")

        first.append(dlx.from_pointer(8, (1,), "int8", owner=Owner()))
        first.append(dlx.from_dlpack(Buffer()))
        """
    assert run_python(code) == (0, "", "")


def test_a_deleter_that_waits_for_the_interpreter_gets_it() -> None:
    """R14: else the thread would end inside it, or wait for ever.

    JAX's client waits at the exit for its threads, which run deleters.
    """
    code = """
        import atexit, ctypes, sys
        from ctypes import addressof
        import dlx
        from support.dlpack_abi import take
        from support.libc import raw_thread

        class Owner:
            def __del__(self):
                print("released", flush=True)

        class Client:
            def __init__(self):
                self.join = raw_thread(managed.deleter, addressof(managed))

            def __del__(self):
                self.join()

        tensor = dlx.from_pointer(8, (1,), "int8", owner=Owner())
        managed = take(tensor.__dlpack__(max_version=(1, 3)))
        del tensor

        @atexit.register
        def last():
            # No Python code runs until the thread waits for the GIL.
            sys.setswitchinterval(60)
            sys.client = Client()
            ctypes.PyDLL(None).usleep(1_000_000)
        """
    assert run_python(dedent(code)) == (0, "released\n", "")
