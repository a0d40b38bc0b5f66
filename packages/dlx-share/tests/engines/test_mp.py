"""Tensors through `multiprocessing`, by shared memory."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import dlx
import dlx_share.mp
import numpy as np
import pytest
from support.optional_libraries import requires
from support.python_process import run_python

from .cases import CASES

# In a process of its own: others of pytest have threads, with which none can fork.
BEGIN = """
import gc, multiprocessing, os, sys, threading
import dlx, dlx_share.mp
import numpy as np
from support.pickled_classes import Bare, Labelled
from engines.cases import BIG, CASES, MIB, address, describe, place

LIBRARIES = [{libraries}]
TYPES = [dlx.Tensor, np.ndarray, Bare]
if "torch" in LIBRARIES:
    import torch
    TYPES.append(torch.Tensor)
if "jax" in LIBRARIES:
    import jax
    TYPES.append(jax.Array)
CASES = [(name, make) for name, make in CASES.items() if name.split()[0] in LIBRARIES]


def answer(receive, send):
    dlx_share.mp.register(*TYPES)
    while (x := receive.get()) is not None:
        described = describe(x), place(address(x)) if address(x) else None
        if type(x) is dlx.Tensor and not x.readonly and x.dtype == "uint8" and x.size:
            np.from_dlpack(x)[0] = 7
        send.put((described, x))


def open_files():
    return len(os.listdir("/proc/self/fd"))


def main():
    dlx_share.mp.register(*TYPES)
    context = multiprocessing.get_context({method!r})
    there, back = context.Queue(), context.Queue()

    def start(target, *args):
        process = context.Process(target=target, args=args, daemon=True)
        process.start()
        return process

    def through(x):
        there.put(x)
        return back.get(timeout=30)

    def end():
        there.put(None)
        process.join(100)
        assert process.exitcode == 0
"""
END = """

if __name__ == "__main__":
    main()
"""


def check_run(tmp_path: Path, body: str, method: str, libraries: str) -> None:
    """Run a program that checks itself, beside a process that answers."""
    names = ", ".join(map(repr, libraries.split()))
    program = tmp_path / "program.py"
    program.write_text(BEGIN.format(libraries=names, method=method) + body + END)
    code = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    assert run_python(code) == (0, "", "")


by_method = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])

EVERY = """
    process = start(answer, there, back)
    for name, make in CASES:
        (described, _), x = through(make())
        assert describe(x) == described == describe(make()), name
    files = []
    for library in LIBRARIES * 2:
        if library in BIG:
            x = BIG[library]()
            (described, where), y = through(x)
            assert describe(x) == described and type(y) is type(x)
            # Each end has memory of its own, which the other need not keep.
            assert not where.inode and not place(address(y)).inode, library
        files.append(open_files())
    assert files[-1] == files[0], "what is attached holds no descriptor"
    end()
    """


@by_method
def test_every_tensor_arrives_as_it_was(tmp_path: Path, method: str) -> None:
    """README.md, Engines: of NumPy, dlx and mixin classes."""
    check_run(tmp_path, EVERY, method, "numpy dlx mixin")


@pytest.mark.parametrize(
    ("method", "library"), [("fork", "torch"), ("spawn", "torch"), ("spawn", "jax")]
)
def test_every_tensor_of_a_library_arrives_as_it_was(
    tmp_path: Path, method: str, library: str
) -> None:
    """README.md, Engines: JAX has threads, so it does not fork."""
    requires(library)
    check_run(tmp_path, EVERY, method, library)


WRITTEN = """
    process = start(answer, there, back)
    with dlx.share(np.zeros(MIB, np.uint8)) as handle:
        shared = dlx.attach(handle)
        (_, where), x = through(shared)
        assert where == place(shared.data_ptr), "the same pages"
        assert shared[0].tolist() == 7, "which the other has written to"
    private = dlx.from_dlpack(np.zeros(MIB, np.uint8))
    (_, where), copied = through(private)
    assert private[0].tolist() == 0 and copied[0].tolist() == 7
    small = dlx.from_dlpack(np.zeros(8, np.uint8))
    (_, where), copied = through(small)
    assert where.inode == 0 and small[0].tolist() == 0 and copied[0].tolist() == 7
    frozen = np.zeros(MIB, np.uint8)
    frozen.flags.writeable = False
    _, copied = through(frozen)
    assert not copied.flags.writeable and dlx.from_dlpack(copied).readonly
    end()
    """


@by_method
def test_only_shared_memory_is_written_to_by_others(
    tmp_path: Path, method: str
) -> None:
    """README.md, Engines: tried by writing, at the other end."""
    check_run(tmp_path, WRITTEN, method, "numpy dlx")


ARGUMENTS = """
    x = dlx.from_dlpack(np.arange(MIB, dtype="uint8"))
    y = np.arange(8.0)
    process = start(check, x, describe(x), y)
    process.join(100)
    assert process.exitcode == 0


def check(x, described, y):
    assert describe(x) == described
    assert y.sum() == 28
    """


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_arguments_of_a_process_arrive(tmp_path: Path, method: str) -> None:
    """README.md, Engines: of `Process`, while it starts."""
    check_run(tmp_path, ARGUMENTS, method, "numpy dlx")


POOL = """
    with context.Pool(1, dlx_share.mp.register, TYPES) as pool:
        x, y = pool.map(twice, [np.arange(MIB, dtype="uint8"), BIG["torch"]()])
    assert x[3] == 6 and y[0] == 2 and y.dtype == torch.bfloat16


def twice(x):
    return x + x
    """


def test_a_pool_takes_and_returns_tensors(tmp_path: Path) -> None:
    """README.md, Engines: registered by its initializer."""
    requires("torch")
    check_run(tmp_path, POOL, "spawn", "numpy torch")


KILLED = """
    import signal
    x = dlx.empty(MIB, "uint8", shared=True)
    files = []
    for _ in range(10):
        receive, send = context.Pipe(False)
        answered, answer = context.Pipe(False)
        process = start(stop, receive, answer)
        send.send(x)
        assert answered.recv().inode
        os.kill(process.pid, signal.SIGKILL)
        process.join(100)
        for each in process, receive, send, answered, answer:
            each.close()
        gc.collect()
        files.append(open_files())
    assert files[-1] == files[1]


def stop(receive, send):
    import time
    x = receive.recv()
    send.send(place(x.data_ptr))
    time.sleep(100)
    """


def test_a_killed_receiver_leaves_nothing_behind(tmp_path: Path) -> None:
    """README.md, Engines: the kernel counts."""
    check_run(tmp_path, KILLED, "fork", "numpy dlx")


# What ends before the other reads.

# As much as a pipe holds: who sends more waits for the reader.
ENDED = """
    pool = context.Pool(1, maxtasksperchild=1)
    results = pool.map_async(full, range(5), chunksize=1).get(60)
    assert [float(x[0]) for x in results] == [0, 1, 2, 3, 4]
    pool.terminate()
    pool.join()
    queue = context.Queue()
    for make in full, shared, part_of_shared:
        process = start(put, queue, make)
        process.join(60)
        x = queue.get(timeout=60)
        assert x.shape == (5_000,) and float(x[0]) == 7, x


def full(n):
    return np.full(5_000, n, "f4")


def shared(n):
    x = dlx.empty(5_000, "float32", shared=True, like=np)
    x[:] = n
    return x


def part_of_shared(n):
    x = dlx.empty((2, 5_000), "float32", shared=True, like=np)
    x[:] = n
    return x[1]


def put(queue, make):
    queue.put(make(7))
    queue.close()
    queue.join_thread()
    os._exit(0)
    """


@by_method
def test_what_a_child_sends_arrives_though_it_has_ended(
    tmp_path: Path, method: str
) -> None:
    """README.md, Engines: private memory, and shared."""
    check_run(tmp_path, ENDED, method, "numpy dlx")


SENDER = """
import sys, dlx, dlx_share.mp, numpy as np
from multiprocessing.connection import Client
dlx_share.mp.register(np.ndarray)
with Client(sys.argv[1], "AF_UNIX") as there:
    there.send(np.full(5_000, 7.0))
    x = dlx.empty(5_000, "float64", shared=True, like=np)
    there.send(x)
"""


def test_what_a_program_sends_arrives_or_says_that_it_has_ended(
    tmp_path: Path,
) -> None:
    """README.md, Engines: a program is no child; nothing raises here."""
    from multiprocessing.connection import Listener

    path = str(tmp_path / "socket")
    with Listener(path, "AF_UNIX") as listener:
        sender = subprocess.Popen([sys.executable, "-c", SENDER, path])
        with listener.accept() as there:
            assert sender.wait() == 0
            assert there.recv().sum() == 35_000
            lost = there.recv()
    uses: list[Callable[[], object]] = [
        *(lambda: lost[0], lambda: len(lost), lambda: lost.sum(), lambda: lost.shape),
        *(lambda: np.asarray(lost), lambda: dlx.from_dlpack(lost)),
        *(lambda: bool(lost), lambda: dlx.attach(lost)),
    ]
    for use in uses:
        with pytest.raises(BufferError, match="has not arrived"):
            use()
    assert "has not arrived" in repr(pickle.loads(pickle.dumps(lost)))


MANY = """
    import resource
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
    pool = context.Pool(1, dlx_share.mp.register, TYPES)
    sent = [np.full(20_000, n, "f4") for n in range(300)]
    assert pool.apply_async(sums, (sent,)).get(60) == [20_000 * n for n in range(300)]
    x = dlx.empty((300, 20_000), "float32", shared=True, like=np)
    x[:] = 1
    assert pool.apply_async(sums, (list(x),)).get(60) == [20_000] * 300
    back = pool.apply_async(arrays, (300,)).get(60)
    assert [x[0] for x in back] == list(range(300))
    pool.terminate()
    pool.join()


def sums(xs):
    return [float(x.sum()) for x in xs]


def arrays(count):
    return [np.full(20_000, n, "f4") for n in range(count)]
    """


@by_method
def test_more_arrays_than_descriptors_arrive(tmp_path: Path, method: str) -> None:
    """README.md, Engines: of private memory, and of shared."""
    check_run(tmp_path, MANY, method, "numpy")


UNREAD = """
    with dlx.share(np.ones(3)):
        before = open_files()
    for _ in range(3):
        one, other = context.Pipe()
        one.send(np.ones(10_000))
        one.close(), other.close()
    gc.collect()
    assert open_files() < before
    assert threading.active_count() == 1
    """


def test_a_message_that_nobody_reads_leaves_nothing(tmp_path: Path) -> None:
    """README.md, Engines: no descriptor waits for private memory."""
    check_run(tmp_path, UNREAD, "fork", "numpy")


REFUSED = """
    pool = context.Pool(1, dlx_share.mp.register)
    x = pool.apply_async(double).get(60)
    assert "x64" in repr(x), x
    pool.terminate()
    pool.join()


def double():
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.ones(20_000, "float64")
    """


def test_a_pool_delivers_what_the_library_refuses(tmp_path: Path) -> None:
    """README.md, Engines: as something that says why."""
    requires("jax")
    check_run(tmp_path, REFUSED, "spawn", "numpy jax")


# What is registered.


@pytest.fixture
def reducers(monkeypatch: pytest.MonkeyPatch) -> dict[type, Any]:
    """Forget at the end what a test registers, but not what torch does."""
    if find_spec("torch"):
        import_module("torch")
    made = dict(vars(ForkingPickler)["_extra_reducers"])
    monkeypatch.setattr(ForkingPickler, "_extra_reducers", made)
    begin = vars(ForkingPickler)["_copyreg_dispatch_table"]
    monkeypatch.setattr(ForkingPickler, "_copyreg_dispatch_table", begin)
    return made


@pytest.mark.usefixtures("reducers")
@pytest.mark.parametrize("name", ["gradient", "sparse", "object"])
def test_what_dlx_cannot_describe_goes_the_old_way(name: str) -> None:
    """README.md, Engines: torch's own reducer, or none."""
    torch = requires("torch")

    dlx_share.mp.register(torch.Tensor, np.ndarray)
    x: Any = torch.ones(2, 2, requires_grad=True)
    if name == "sparse":
        x = torch.eye(2).to_sparse()
    if name == "object":
        x = np.array([None, "a"])
    text = bytes(ForkingPickler.dumps(x))
    assert b"dlx" not in text
    assert (b"torch.multiprocessing" in text) == (name != "object")


def test_a_class_is_registered_once(reducers: dict[type, Any]) -> None:
    """README.md, Engines: call it as often as you like."""
    dlx_share.mp.register(dlx.Tensor)
    first = reducers[dlx.Tensor]
    dlx_share.mp.register(dlx.Tensor)
    assert reducers[dlx.Tensor] is first


@pytest.mark.usefixtures("reducers")
@pytest.mark.parametrize("cls", [int, object, dict, b"instance"])
def test_other_classes_are_refused(cls: Any) -> None:
    """README.md, Engines: with what is accepted."""
    with pytest.raises(TypeError, match="expected dlx"):
        dlx_share.mp.register(cls)


@pytest.mark.usefixtures("reducers")
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_tensors_are_pickled_in_every_protocol(protocol: int) -> None:
    """README.md, Engines: with their bytes."""
    dlx_share.mp.register(dlx.Tensor)
    x = CASES["dlx bfloat16"]()
    text = bytes(ForkingPickler.dumps(x, protocol))
    assert pickle.loads(text).raw() == x.raw()


@pytest.mark.usefixtures("reducers")
def test_all_classes_are_registered_where_none_is_named() -> None:
    """README.md, Engines: as for dask and Ray; nothing is imported."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dlx_share.mp.register()
    dlx_share.mp.register()
    for x in np.ones(3, ml_dtypes.bfloat16), dlx.from_dlpack(np.ones(3)):
        text = bytes(ForkingPickler.dumps(x))
        assert b"dlx_share.mp" in text
        assert dlx.from_dlpack(pickle.loads(text)).tolist() == [1, 1, 1]
    assert b"dlx" not in bytes(ForkingPickler.dumps({1: int, "a": [None]}))


@pytest.mark.usefixtures("reducers")
def test_a_library_that_registers_later_keeps_what_dlx_cannot_do() -> None:
    """README.md, Engines: torch does, when it is imported."""
    dlx_share.mp.register()
    ForkingPickler.register(np.ndarray, lambda x: (len, ("ab",)))
    assert ForkingPickler.loads(ForkingPickler.dumps(np.array([None]))) == 2
    back = ForkingPickler.loads(ForkingPickler.dumps(np.ones(3)))
    assert back.tolist() == [1, 1, 1]


def test_register_without_classes_imports_nothing() -> None:
    """README.md, Engines: libraries may be imported later."""
    code = """
import sys, dlx_share.mp
dlx_share.mp.register()
assert not {"numpy", "torch", "jax", "mlx"} & sys.modules.keys()
import numpy as np
from multiprocessing.reduction import ForkingPickler
assert b"dlx_share.mp" in bytes(ForkingPickler.dumps(np.ones(3)))
"""
    assert run_python(code) == (0, "", "")


@pytest.mark.usefixtures("reducers")
def test_a_tensor_on_a_device_goes_the_old_way() -> None:
    """README.md, Engines: which refuses it."""
    dlx_share.mp.register(dlx.Tensor)
    t = dlx.from_pointer(4096, (2,), "float32", device="cuda:0")
    with pytest.raises(BufferError, match="cuda:0"):
        ForkingPickler.dumps(t)


def test_a_child_sends_memory_that_torch_shares_as_torch_does() -> None:
    """README.md, Engines: what the receiver writes is seen by the child."""
    requires("torch")
    code, out, errors = run_python(
        """
        import multiprocessing
        import dlx_share.mp
        import torch

        context = multiprocessing.get_context("fork")
        there, back = context.Queue(), context.Queue()

        def child():
            x = torch.zeros(3).share_memory_()
            back.put(x)
            there.get()
            back.put(x.tolist())

        dlx_share.mp.register()
        process = context.Process(target=child)
        process.start()
        back.get()[1] = 42
        there.put(None)
        print(back.get())
        process.join()
        """
    )
    assert (code, out) == (0, "[0.0, 42.0, 0.0]\n"), errors


@pytest.mark.usefixtures("reducers")
def test_another_file_than_the_one_described_is_refused() -> None:
    """README.md, Security: it says so when it is used, and is closed."""
    from multiprocessing.resource_sharer import DupFd

    with dlx.share(bytearray(100_000)) as h, open("/proc/self/maps") as other:
        data = bytes(h)
        files = None
        for text in data, data, data[:-1], b"":
            waiting: Any = DupFd(other.fileno())
            lost: Any = dlx_share.mp._arrived("dlx", waiting._id, text)
            with pytest.raises(BufferError, match="has not arrived"):
                lost.tolist()
            if text == data:  # Otherwise nobody takes what waits.
                files = files or len(os.listdir("/proc/self/fd"))
                assert len(os.listdir("/proc/self/fd")) == files


def test_dlx_alone_loads_no_engine() -> None:
    """README.md, Engines: nothing is imported unasked."""
    code = """
    import sys, dlx
    loaded = {"dask", "distributed", "ray", "mpi4py", "multiprocessing", "dlx_share.mp"}
    assert not loaded & sys.modules.keys()
    import dlx_share.mp
    assert not {"numpy", "torch", "jax", "dask", "ray"} & sys.modules.keys()
    """
    assert run_python(code) == (0, "", "")
    assert multiprocessing is not None
