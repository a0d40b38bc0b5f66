"""A fork while other threads, which Python knows nothing of, are at work inside dlx."""

from __future__ import annotations

import os

from .test_copies_failing import in_process

HAMMERED = """
    import atexit, ctypes, os, threading, time, warnings
    import dlx, numpy as np
    from support.dlpack_abi import DLTensor, table_of
    from support.fake_producers import c_library
    from support.cuda_producers import TableArray, framework
    from support.simulated_kernels import read
    from support.simulated_driver import simulation

    simulation().start()

    class Hammer(ctypes.Structure):
        _fields_ = (
            ("allocator", ctypes.c_void_p),
            ("prototype", ctypes.c_void_p),
            ("stopped", ctypes.c_int),
            ("rounds", ctypes.c_int64),
        )

    shape = (ctypes.c_int64 * 1)(4)
    prototype = DLTensor(device=(2, 0), dtype=(2, 32, 1), ndim=1, shape=shape)
    allocator = table_of(dlx.Tensor).managed_tensor_allocator
    hammer = ctypes.CDLL(c_library()._name).hammer
    hammers = [
        Hammer(ctypes.cast(allocator, ctypes.c_void_p), ctypes.addressof(prototype))
        for _ in range(4)
    ]
    threads = [
        threading.Thread(target=hammer, args=(ctypes.byref(each),)) for each in hammers
    ]

    def child(body):
        with warnings.catch_warnings():
            # CPython warns of threads, which are what is tested.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            body()
            # What is left is given back.
            atexit._run_exitfuncs()
            os._exit(0)
        for _ in range(60000):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                assert status == 0, status
                return
            time.sleep(0.001)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        raise SystemExit("a child hangs")
"""


def test_a_child_never_waits_for_a_thread_that_it_does_not_have() -> None:
    """Whatever lock of dlx the other threads were in."""
    in_process(
        HAMMERED
        + """
    library, p, s = framework(TableArray), simulation().stream(), simulation().stream()

    def used():
        with library.stream(p):
            tensor = dlx.from_dlpack(library.full((4,)), stream=s)
            read(s, tensor)
            return tensor

    # What the stream has not passed waits, and each allocation looks whether it has.
    for _ in range(16):
        used()
    tensor, memory = used(), dlx.from_dlpack(np.arange(3), device="cuda:0")

    def body():
        global tensor, memory
        del tensor, memory
        assert dlx.from_dlpack(np.arange(3)).to(copy=True).size == 3

    for thread in threads:
        thread.start()
    try:
        for _ in range({forks}):
            child(body)
    finally:
        for each in hammers:
            each.stopped = 1
        for thread in threads:
            thread.join()
    rounds = [each.rounds for each in hammers]
    assert all(each > {forks} for each in rounds), rounds
    """.format(forks=200 if os.environ.get("DLX_EVERY") else 60)
    )


def test_a_child_may_fork_again() -> None:
    """The child of a fork in the midst of work has nobody to wait for."""
    in_process(
        HAMMERED
        + """
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child(lambda: child(lambda: None))
    finally:
        for each in hammers:
            each.stopped = 1
        for thread in threads:
            thread.join()
    """
    )
