"""Forks: a child has one thread, and waits for none of those that it has not.

`streams/test_fork.py` does so while threads are inside the locks of detached code.
"""

from __future__ import annotations

import json
from functools import cache

import pytest
from support.callback_steps import STEPS
from support.python_process import run_python
from support.simulated_driver import library_path

pytestmark = pytest.mark.slow


@cache
def outcomes() -> dict[str, list[str]]:
    """Fork in all steps, and return what went wrong."""
    status, out, err = run_python(
        "import runpy; runpy.run_module('support.fork_program', run_name='__main__')"
    )
    assert status == 0, err
    found: dict[str, list[str]] = json.loads(out)
    return found


@pytest.mark.parametrize("step", STEPS)
def test_a_child_works_while_user_code_runs(step: str) -> None:
    """docs/safety.md, Threads: dlx holds no lock there, in this thread or another."""
    assert outcomes()[step] == []


BEFORE = """
    import gc, os, threading
    import dlx, numpy as np
    from support.forked_child import in_child
    """

LOCKS = {
    "of traces": """
    def work():
        with dlx.trace() as trace:
            dlx.from_dlpack(array).__dlpack__()
            dlx.live()
        str(trace)
    """,
    "of mappings": """
    def work():
        with dlx.share(array) as handle:
            dlx.attach(bytes(handle)).tolist()
        dlx.empty((3,), "int8", shared=True)
    """,
    "of tables": """
    made = iter(range(300))  # There are 512 tables.
    def work():
        if next(made, None) is None:
            return
        class Stored(dlx.ExchangeMixin, exchange="data"):
            def __init__(self, data):
                self.data = data
        dlx.convert(dlx.convert(array, Stored), np.ndarray)
    """,
    "of strides": """
    def work():
        with dlx.borrow(array[:, ::2]):
            np.from_dlpack(dlx.from_dlpack(array[::2]))
    """,
    "of blocks and iterators": """
    loan = dlx.borrow(array)
    parts = iter(dlx.from_dlpack(np.zeros((1_000_000, 1))))
    def work():
        next(parts, None)  # Behind the last one it looks under the lock, too.
        try:
            with loan:
                next(parts, None)
        except RuntimeError:
            pass
    """,
    "of classes that die": """
    def work():
        class Producer:
            def __dlpack__(self, **keywords):
                return array.__dlpack__(**keywords)
            def __dlpack_device__(self):
                return 1, 0
        for _ in range(3):
            dlx.from_dlpack(Producer())
        gc.collect(0)
    """,
}


@pytest.mark.parametrize("work", LOCKS.values(), ids=LOCKS)
def test_a_child_finds_every_lock_free(work: str) -> None:
    """docs/safety.md, Threads: whatever the other threads were doing."""
    code = BEFORE + "array = np.arange(12.0).reshape(3, 4)\n" + work
    code += """
    stopped = threading.Event()

    def repeat():
        while not stopped.is_set():
            work()

    def child():
        for _ in range(3):
            work()

    work()  # A child waits for the lock of a module that a thread was importing.
    threads = [threading.Thread(target=repeat) for _ in range(3)]
    for thread in threads:
        thread.start()
    said = [in_child(child) for _ in range(5)]
    stopped.set()
    for thread in threads:
        thread.join()
    print("".join(said))
    """
    assert run_python(code) == (0, "\n", "")


def test_exports_live_on_both_sides() -> None:
    """R14: each process lets go of what it inherited, and of nothing else."""
    code = (
        BEFORE
        + """
    class Owner:
        def __init__(self):
            self.memory = np.arange(3)
        def __del__(self):
            os.write(1, f"let go by {who}\\n".encode())

    who, owner = "parent", Owner()
    address = owner.memory.ctypes.data
    tensor = dlx.from_pointer(address, (3,), "int64", owner=owner)
    kept = [tensor, np.from_dlpack(tensor), memoryview(tensor), tensor.__dlpack__()]
    kept.append(dlx.from_dlpack(tensor.__dlpack__(max_version=(1, 3))))
    handle = dlx.share(tensor)
    attached = dlx.attach(handle)
    del owner, tensor

    def child():
        global who, attached
        who = "child"
        assert dlx.from_dlpack(kept[3]).tolist() == [0, 1, 2]
        assert attached.tolist() == [0, 1, 2]
        kept.clear()
        gc.collect()
        handle.close()
        del attached

    print(in_child(child) or "in_child", flush=True)
    assert dlx.from_dlpack(kept[3]).tolist() == [0, 1, 2]
    assert np.asarray(kept[1]).tolist() == attached.tolist() == [0, 1, 2]
    assert dlx.attach(handle).tolist() == [0, 1, 2]
    kept.clear()
    """
    )
    lines = "let go by child\nin_child\nlet go by parent\n"
    assert run_python(code) == (0, lines, "")


def test_a_child_never_calls_the_driver() -> None:
    """docs/safety.md, Threads: a driver does not survive a fork, and dlx says so."""
    code = f"""
    import os
    os.environ["DLX_LIBCUDA"] = {str(library_path())!r}
    """
    code += (
        BEFORE
        + """
    from support.cuda_producers import InterfaceArray, TableArray, framework
    from support.simulated_driver import simulation

    sim = simulation()
    sim.start()
    s, array = sim.stream(), np.arange(3.0)
    device = dlx.from_dlpack(array, device="cuda:0", stream=s)
    copied = device.to(copy=True)
    libraries = [framework(kind) for kind in (TableArray, InterfaceArray)]
    arrays = []
    for library in libraries:
        with library.stream(sim.stream()):
            arrays.append(library.full((4,)))
    kept = [dlx.from_dlpack(each, stream=s) for each in arrays]
    capsule = device.__dlpack__(stream=s.handle)
    WAYS = {
        "up": lambda: dlx.from_dlpack(array, device="cuda:0"),
        "down": lambda: device.to(device="cpu"),
        "across": lambda: device.to(copy=True),
        "empty": lambda: dlx.empty(3, "int8", device="cuda:0"),
        "by table": lambda: dlx.from_dlpack(arrays[0], stream=s),
        "by interface": lambda: dlx.from_dlpack(arrays[1], stream=s),
        "export": lambda: device.__dlpack__(stream=sim_stream),
        "borrow": lambda: dlx.borrow(device, stream=s).__enter__(),
    }
    sim_stream = sim.stream().handle
    for way in WAYS.values():
        way()
    gc.collect()

    def child():
        global device, copied, capsule
        sim.clear_journal()
        for name, way in WAYS.items():
            try:
                way()
            except RuntimeError as error:
                assert "a driver does not survive a fork" in str(error), error
            else:
                raise AssertionError(name)
        assert dlx.from_dlpack(array).to(copy=True).tolist() == [0, 1, 2]
        del device, copied, capsule
        kept.clear()
        gc.collect()
        assert sim.called() == [], sim.called()

    print(in_child(child))
    assert device.to(device="cpu").tolist() == [0, 1, 2]
    assert sim.violations == []
    """
    )
    assert run_python(code) == (0, "\n", "")


FIRST_USE = """
    import logging, os, signal, threading, warnings
    import dlx, numpy as np

    packed = np.zeros(3, np.dtype("u1, f4"))["f1"]  # Strides of 5 bytes are copied.
    ended = []

    def use():
        dlx.convert(packed, dlx.Tensor)

    def fork():
        if (child := os.fork()) == 0:
            signal.alarm(60)
            use()
            os._exit(0)
        ended.append(os.waitpid(child, 0)[1])

    def get(name, get=logging.getLogger):
        logging.getLogger = get
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        return get(name)

    warnings.simplefilter("ignore")  # CPython warns of forks beside threads.
    logging.getLogger = get
    use()
    assert ended == [0], f"{ended}: the child waits for a thread that it has not"
    """


def test_a_child_of_a_fork_during_a_first_use_makes_its_own() -> None:
    """docs/safety.md, Threads: of what dlx looks up once, such as its logger."""
    assert run_python(FIRST_USE) == (0, "", "")
