"""Tensors through `multiprocessing`, by shared memory."""

from __future__ import annotations

import multiprocessing
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import dlx
import dlx_share.mp
import pytest
from support.optional_libraries import requires
from support.python_process import run_python

from .cases import CASES

# In a process of its own: others of pytest have threads, with which none can fork.
BEGIN = """
import gc, multiprocessing, os, sys
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
            # Each end has it in a segment, and not in memory of its own.
            assert where.inode > 0 and place(address(y)).inode > 0, library
        files.append(open_files())
    assert files[-1] == files[0], "what is attached holds no descriptor"
    end()
    """


@by_method
def test_every_tensor_arrives_as_it_was(tmp_path: Path, method: str) -> None:
    """docs/sharing.md, multiprocessing: of NumPy, dlx and mixin classes."""
    check_run(tmp_path, EVERY, method, "numpy dlx mixin")


@pytest.mark.parametrize(
    ("method", "library"), [("fork", "torch"), ("spawn", "torch"), ("spawn", "jax")]
)
def test_every_tensor_of_a_library_arrives_as_it_was(
    tmp_path: Path, method: str, library: str
) -> None:
    """docs/sharing.md, multiprocessing: JAX has threads, so it does not fork."""
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
    """docs/sharing.md, multiprocessing: tried by writing, at the other end."""
    check_run(tmp_path, WRITTEN, method, "numpy dlx")


ARGUMENTS = """
    x = dlx.from_dlpack(np.arange(MIB, dtype="uint8"))
    y = np.arange(8.0)
    process = start(check, x, describe(x), y)
    process.join(100)
    assert process.exitcode == 0


def check(x, described, y):
    assert describe(x) == described and place(x.data_ptr).inode
    assert y.sum() == 28 and not place(address(y)).inode
    """


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_arguments_of_a_process_arrive(tmp_path: Path, method: str) -> None:
    """docs/sharing.md, multiprocessing: of `Process`, while it starts."""
    check_run(tmp_path, ARGUMENTS, method, "numpy dlx")


POOL = """
    with context.Pool(1, dlx_share.mp.register, TYPES) as pool:
        x, y = pool.map(twice, [np.arange(MIB, dtype="uint8"), BIG["torch"]()])
    assert place(address(x)).inode and place(address(y)).inode
    assert x[3] == 6 and y[0] == 2 and y.dtype == torch.bfloat16


def twice(x):
    assert place(address(x)).inode
    return x + x
    """


def test_a_pool_takes_and_returns_tensors(tmp_path: Path) -> None:
    """docs/sharing.md, multiprocessing: registered by its initializer."""
    requires("torch")
    check_run(tmp_path, POOL, "spawn", "numpy torch")


KILLED = """
    import signal
    x = dlx.from_dlpack(np.zeros(MIB, np.uint8))
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
    """docs/sharing.md, multiprocessing: the kernel counts."""
    check_run(tmp_path, KILLED, "fork", "numpy dlx")


# What is registered.


@pytest.fixture
def reducers(monkeypatch: pytest.MonkeyPatch) -> dict[type, Any]:
    """Forget at the end what a test registers."""
    made = dict(vars(ForkingPickler)["_extra_reducers"])
    monkeypatch.setattr(ForkingPickler, "_extra_reducers", made)
    return made


@pytest.mark.usefixtures("reducers")
@pytest.mark.parametrize("name", ["gradient", "sparse", "object"])
def test_what_dlx_cannot_describe_goes_the_old_way(name: str) -> None:
    """docs/sharing.md, multiprocessing: torch's own reducer, or none."""
    torch = requires("torch")
    import numpy as np

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
    """docs/sharing.md, multiprocessing: call it as often as you like."""
    dlx_share.mp.register(dlx.Tensor)
    first = reducers[dlx.Tensor]
    dlx_share.mp.register(dlx.Tensor)
    assert reducers[dlx.Tensor] is first


@pytest.mark.usefixtures("reducers")
@pytest.mark.parametrize("cls", [int, object, dict, b"instance"])
def test_other_classes_are_refused(cls: Any) -> None:
    """docs/sharing.md, multiprocessing: with what is accepted."""
    with pytest.raises(TypeError, match="expected dlx"):
        dlx_share.mp.register(cls)


@pytest.mark.usefixtures("reducers")
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_small_tensors_are_pickled_in_every_protocol(protocol: int) -> None:
    """docs/sharing.md, multiprocessing: below 64 KiB there is no segment."""
    dlx_share.mp.register(dlx.Tensor)
    x = CASES["dlx bfloat16"]()
    text = bytes(ForkingPickler.dumps(x, protocol))
    assert b"dlx_share.mp" not in text
    assert pickle.loads(text).raw() == x.raw()


@pytest.mark.usefixtures("reducers")
def test_a_tensor_on_a_device_goes_the_old_way() -> None:
    """docs/sharing.md, multiprocessing: which refuses it."""
    dlx_share.mp.register(dlx.Tensor)
    t = dlx.from_pointer(4096, (2,), "float32", device="cuda:0")
    with pytest.raises(BufferError, match="cuda:0"):
        ForkingPickler.dumps(t)


@pytest.mark.usefixtures("reducers")
def test_another_file_than_the_one_described_is_refused() -> None:
    """docs/sharing.md, Security: a `BufferError`, and the file is closed."""
    import os

    class File:
        def detach(self) -> int:
            return os.open("/proc/self/maps", os.O_RDONLY)

    with dlx.share(bytearray(100_000)) as h:
        data = bytes(h)
        files = len(os.listdir("/proc/self/fd"))
        for text in data, data[:-1], b"":
            with pytest.raises(BufferError):
                dlx_share.mp._arrived("dlx", File(), text)  # type: ignore[arg-type]
        assert len(os.listdir("/proc/self/fd")) == files


def test_dlx_alone_loads_no_engine() -> None:
    """docs/sharing.md, Engines: nothing is imported unasked."""
    code = """
    import sys, dlx
    loaded = {"dask", "distributed", "ray", "mpi4py", "multiprocessing", "dlx_share.mp"}
    assert not loaded & sys.modules.keys()
    import dlx_share.mp
    assert not {"numpy", "torch", "jax", "dask", "ray"} & sys.modules.keys()
    """
    assert run_python(code) == (0, "", "")
    assert multiprocessing is not None
