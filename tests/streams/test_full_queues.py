"""Calls that wait for a Python host function, which needs the GIL.

Each operation runs in a process of its own: where dlx holds the GIL in such a call, the
simulated driver ends the process and says which call it was.
"""

from __future__ import annotations

import pytest
from support.python_process import run_after

IMPORTS = """
import threading
import dlx
import numpy as np
from support.cuda_producers import TableArray, framework
from support.simulated_driver import library_path, simulation
from support.simulated_kernels import read

library_path()
"""

BEFORE = """
sim = simulation()
sim.start()
library, p, s = framework(TableArray), sim.stream(), sim.stream()

def prepare(array):
    {prepare}

def work(array, made):
    {work}

with library.stream(p):
    array = library.full((4,))
    # What the first use loads and makes is there.
    work(array, prepare(array))
    made = prepare(array)
    {ahead}
    sim.clear_journal()
    kept = work(array, made)
assert any(call.waited for call in sim.calls()), sim.called()
print("done")
sim.advance()  # The end waits for nothing.
"""

FULL = """
    for stream in (p, s):
        stream.bound(1)
        stream.host_function(lambda: None)
"""

LOCKED = """
    go, started, q = threading.Event(), threading.Event(), sim.stream()
    q.host_function(started.set, go.wait)

    def release():
        while not any(call.waited for call in sim.calls()):
            pass
        go.set()

    sim.clear_journal()
    threads = [threading.Thread(target=each) for each in (q.advance, release)]
    for thread in threads:
        thread.start()
    started.wait()
    sim.lock_functions()
"""

NOTHING = "return None"
IMPORTED = "return [dlx.from_dlpack(array, stream=s)]"
QUEUING = {
    "import": (NOTHING, "return dlx.from_dlpack(array, stream=s)"),
    "export": (
        "return dlx.from_dlpack(array)",
        "return made.__dlpack__(stream=s.handle)",
    ),
    "borrow, enter": (NOTHING, "return dlx.borrow(array, stream=s).__enter__()"),
    "borrow, exit": (
        "block = dlx.borrow(array, stream=s); block.__enter__(); return block",
        "made.__exit__(None, None, None)",
    ),
    "use": (IMPORTED, "return made[0].use(stream=p).__enter__()"),
    "release": (IMPORTED, "made.clear()"),
    "copy down": (NOTHING, "return dlx.from_dlpack(array, device='cpu')"),
    "copy up": (
        "return np.zeros(4)",
        "return dlx.from_dlpack(made, device='cuda:0', stream=s)",
    ),
    "copy across": (NOTHING, "return dlx.from_dlpack(array, copy=True, stream=s)"),
    "empty": (
        NOTHING,
        "with dlx.stream(s): return dlx.empty(4, 'int8', device='cuda:0')",
    ),
    "free": (
        "with dlx.stream(s): return [dlx.empty(4, 'int8', device='cuda:0')]",
        "made.clear()",
    ),
    "synchronize": (IMPORTED, "made[0].synchronize()"),
    "Stream.synchronize": ("return dlx.Stream(s)", "made.synchronize()"),
    "Stream.wait": ("return dlx.Stream(s)", "made.wait(p)"),
}


def ends(prepare: str, work: str, ahead: str) -> None:
    """Check that a process with a host function ahead of the work ends well."""
    code = BEFORE.format(prepare=prepare, work=work, ahead=ahead.strip("\n").lstrip())
    assert run_after(IMPORTS, code) == (0, "done\n", "")


@pytest.mark.parametrize(("prepare", "work"), QUEUING.values(), ids=QUEUING)
def test_a_full_queue_behind_a_host_function_goes_on(prepare: str, work: str) -> None:
    """TensorRT-LLM#15855, LMCache#2952: the GIL is free while the call waits."""
    ends(prepare, work, FULL)


@pytest.mark.parametrize(("prepare", "work"), QUEUING.values(), ids=QUEUING)
def test_a_driver_that_is_locked_by_a_host_function_goes_on(
    prepare: str, work: str
) -> None:
    """numba-cuda#317: whichever call waits for the lock."""
    ends(prepare, work, LOCKED)


def test_a_process_ends_behind_a_host_function() -> None:
    """H5: whether or not the memory that waits behind one is released."""
    code = """
        sim = simulation()
        sim.start()
        library, p, s = framework(TableArray), sim.stream(), sim.stream()
        with library.stream(p):
            array = library.full((4,))
            tensor = dlx.from_dlpack(array, stream=s)
            s.host_function(lambda: print("function"))
            read(s, tensor)
            del tensor
        print("end")
    """
    status, output, errors = run_after(IMPORTS, code)
    assert (status, output.split()[:1], errors) == (0, ["end"], "")
