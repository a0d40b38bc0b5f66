"""What happens to shared memory when handles are closed and processes are killed."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_share.sharing import Handle
from support.killed_at import CALLS
from support.python_process import run_python
from support.shared_memory import (
    ARRAY,
    BEGIN,
    alone,
    ask,
    child,
    exporter,
    kill,
    mappings,
    names,
    open_files,
    told,
)

SUPPORT = str(Path(__file__).parents[3] / "tests")
PATHS = os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")])
SUPPORTED = os.environ | {"PYTHONPATH": PATHS}
ROUNDS = int(os.environ.get("DLX_SHARING_ROUNDS", "100"))


# The exporter.


def test_a_closed_handle_is_told_before_attach_and_harms_nothing_after() -> None:
    """README.md, What happens when: the exporter's handle is closed."""
    code = "h = dlx.share(np.arange(3.0))\ntell(bytes(h))\ninto.readline()\n"
    with child(code + "h.close()\ntell()\ninto.read()") as process:
        data = told(process)
        t = dlx.attach(data)
        ask(process)
        assert t.tolist() == [0, 1, 2]
        with pytest.raises(BufferError, match="was closed, or no variable held it"):
            dlx.attach(data)


def test_a_killed_exporter_is_told_before_attach_and_harms_nothing_after() -> None:
    """README.md, What happens when: the exporter is killed."""
    with exporter() as (process, data):
        t, h = dlx.attach(data), Handle(data)
        kill(process)
        assert t.tolist() == dlx.attach(h).tolist() == ARRAY.tolist()
        with pytest.raises(BufferError, match=f"process {process.pid}.* is gone"):
            dlx.attach(data)


def test_a_handle_that_arrives_dead_raises_when_it_is_used() -> None:
    """README.md, What happens when: not while it is unpickled."""
    code = "h = dlx.share(np.arange(3))\ntell(pickle.dumps(h))\ninto.read()"
    with child(code) as process:
        data = told(process)
        kill(process)
    h = pickle.loads(data)
    one, other = socket.socketpair()
    uses: list[Callable[[], object]] = [
        *(lambda: dlx.attach(h), lambda: bytes(h), lambda: h.shape, lambda: h.dtype),
        *(lambda: h.readonly, lambda: h.is_copied, lambda: h.send(one)),
    ]
    with one, other:
        for use in uses:
            with pytest.raises(BufferError, match=f"process {process.pid}.* is gone"):
                use()
    assert "is gone" in repr(h)
    assert "is gone" in repr(pickle.loads(pickle.dumps(h)))
    assert "is gone" in repr(copy.copy(h))
    with h:
        h.close()


@pytest.mark.parametrize("kind", ["Pool", "ProcessPoolExecutor"])
def test_a_pool_delivers_a_handle_that_its_worker_has_dropped(kind: str) -> None:
    """README.md, Sharing: neither kind of pool hangs or breaks."""
    code = """
import gc, multiprocessing
from concurrent.futures import ProcessPoolExecutor
def made():
    return dlx.share(np.arange(3))
context = multiprocessing.get_context("fork")
if KIND == "Pool":
    pool = context.Pool(1)
    run = lambda: pool.apply_async(made).get(60)
else:
    pool = ProcessPoolExecutor(1, mp_context=context)
    run = lambda: pool.submit(made).result(60)
for _ in range(2):
    h = run()
    try:
        dlx.attach(h)
    except BufferError as error:
        assert "closed" in str(error), error
if KIND == "Pool":
    pool.terminate()
    pool.join()
else:
    pool.shutdown()
"""
    assert run_python(BEGIN + code.replace("KIND", repr(kind))) == (0, "", "")


KILLED = f"""{BEGIN}
from support.killed_at import kill_at
import dlx_share.sharing
"""


def killed_at(step: str, body: str) -> None:
    """Run code that the kernel ends at a call of the system."""
    steps = [name for name in CALLS if name.startswith(step)]
    code = KILLED + body.replace("KILL", f"kill_at(*{steps})")
    ran = subprocess.run([sys.executable, "-c", code], check=False, env=SUPPORTED)
    if ran.returncode == 1:
        pytest.skip("no filter of system calls")
    assert ran.returncode == -signal.SIGSYS


@pytest.mark.parametrize(
    "step",
    [
        *("memfd_create", "fchmod", "ftruncate", "pwrite64", "fcntl"),
        *("openat", "write", "linkat"),
    ],
)
def test_an_exporter_killed_while_it_shares_leaves_nothing(step: str) -> None:
    """README.md, What happens when: at each call of the system."""
    body = f"KILL\ndlx.share(np.arange(3), name='step-{os.getpid()}')"
    with alone():
        killed_at(step, body)
        assert not [name for name in names() if f"step-{os.getpid()}" in name]


@pytest.mark.parametrize("step", ["", "unlink"])
def test_the_name_of_a_killed_exporter_is_taken_by_the_next(step: str) -> None:
    """README.md, What happens when: killed after it made it, or in `close`."""
    name = f"half-{os.getpid()}"
    body = f"h = dlx.share(np.arange(3), name={name!r})\n"
    with alone():
        if step:
            killed_at(step, body + "KILL\nh.close()")
        else:
            with child(body + "tell()\ninto.read()") as process:
                told(process)
                kill(process)
        with dlx.share(ARRAY, name=name):
            assert dlx.attach(f"shm:{name}").tolist() == ARRAY.tolist()
        assert not [found for found in names() if name in found]


# The one that attaches.


@pytest.mark.parametrize(
    "step", ["openat", "readlink", "newfstatat", "fcntl", "mmap", "close"]
)
def test_an_attacher_killed_while_it_opens_leaves_nothing(step: str) -> None:
    """README.md, What happens when: the exporter goes on."""
    with dlx.share(ARRAY) as h:
        files, maps = open_files(), mappings()
        killed_at(step, f"KILL\ndlx.attach({bytes(h)!r})")
        assert (open_files(), mappings()) == (files, maps)
        assert dlx.attach(h).tolist() == ARRAY.tolist()


def test_an_attacher_killed_with_the_memory_leaves_nothing() -> None:
    """README.md, What happens when: handle and mapping go with it."""
    code = "h = pickle.load(into)\nt = dlx.attach(h)\ntell()\ninto.read()"
    with dlx.share(ARRAY) as h, child(code) as process:
        ask(process, h)
        assert segment_in(process.pid, h)
        kill(process)
        assert dlx.attach(bytes(h)).tolist() == ARRAY.tolist()


def segment_in(pid: int, h: Handle) -> bool:
    """Whether a process has mapped the segment of a handle."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    inode = str(h._described.inode[1])
    return any(line.split()[4] == inode for line in maps)


# Numbers that are used again.


def test_a_descriptor_used_again_is_told() -> None:
    """README.md, What happens when: also for a segment of the same process."""
    h = dlx.share(ARRAY)
    data, number = bytes(h), h._file
    h.close()
    with dlx.share(ARRAY + 1) as other:
        assert other._file == number
        with pytest.raises(BufferError, match="not what it says"):
            dlx.attach(data)


def test_a_pid_used_again_is_told() -> None:
    """README.md, What happens when: the start of the process is compared."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        pytest.skip("only root can choose a PID")
    with exporter() as (process, data):
        kill(process)
    again = None
    for _ in range(50):  # Another process may come first.
        last.write_text(str(process.pid - 1))
        again = subprocess.Popen(["sleep", "100"])
        try:
            if again.pid == process.pid:
                with pytest.raises(BufferError, match=f"process {process.pid}.* gone"):
                    dlx.attach(data)
                return
        finally:
            again.kill()
            again.wait()
    pytest.skip("the PID was taken")


# Other places.


@pytest.mark.parametrize(
    ("place", "match"), [(16, "another host"), (48, "another PID namespace")]
)
def test_another_host_and_another_namespace_are_told(place: int, match: str) -> None:
    """README.md, What happens when: the handle arrives, and says which."""
    with dlx.share(ARRAY) as h:
        data = bytearray(bytes(h))
        data[place] ^= 1
        with pytest.raises(BufferError, match=match):
            dlx.attach(bytes(data))


def test_a_container_is_told() -> None:
    """README.md, What happens when: in a PID namespace of its own."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can make a namespace")
    with dlx.share(ARRAY) as h:
        code = (
            f"{BEGIN}\ntry: dlx.attach({bytes(h)!r})\nexcept BufferError as e: print(e)"
        )
        command = [*unshare, sys.executable, "-c", code]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "another PID namespace" in ran.stdout


def test_a_fork_has_the_same_memory_and_handles_of_its_own() -> None:
    """README.md, What happens when: a handle made before is one of the child."""
    code = """
h = dlx.share(np.zeros(2))
a = np.from_dlpack(dlx.attach(h))
if (pid := os.fork()) == 0:
    a[0] = 7
    data = bytes(h)
    assert int.from_bytes(data[56:60], "little") == os.getpid()
    assert dlx.attach(data).tolist() == [7.0, 0.0]
    h.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
tell([a.tolist(), dlx.attach(bytes(h)).tolist()])
"""
    with child(code) as process:
        assert told(process) == [[7.0, 0.0], [7.0, 0.0]]


# Files that get shorter.


@pytest.mark.parametrize("readonly", [False, True])
def test_nobody_can_truncate_a_segment(readonly: bool) -> None:
    """README.md, What happens when: neither its exporter nor others."""
    with exporter(readonly) as (_, data):
        other = Handle(data)
        mine = dlx.share(ARRAY, readonly=readonly)
        for h in other, mine:
            file = os.open(f"/proc/self/fd/{h._file}", os.O_RDWR)
            for size in 0, 4096:
                with pytest.raises(PermissionError):
                    os.ftruncate(file, size)
            os.close(file)


@pytest.mark.parametrize("mode", [None, "r", "rw", "cow"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_handle_of_a_file_that_was_truncated_is_told(
    tmp_path: Path, is_mapped: bool, mode: Any
) -> None:
    """README.md, What happens when: before `attach`, though it is mapped."""
    path = tmp_path / "file"
    x = np.memmap(path, "f8", "w+", shape=(4096,))
    with dlx.share(x, copy=False) as h:
        there = pickle.loads(pickle.dumps(h))
        before = dlx.attach(h, mode=mode) if is_mapped else None
        os.truncate(path, 4096)
        for handle in h, there:
            with pytest.raises(BufferError, match="shorter than its 32768 bytes"):
                dlx.attach(handle, mode=mode)
        os.truncate(path, 32768)
        assert dlx.attach(h, mode=mode).shape == (4096,)
    del before


def test_reading_a_file_that_was_truncated_ends_the_process(tmp_path: Path) -> None:
    """README.md, What happens when: SIGBUS, as for every mapping of a file."""
    code = f"""
import dlx, numpy as np, os
x = np.memmap({str(tmp_path / "file")!r}, "f8", "w+", shape=(1000,))
with dlx.share(x, copy=False) as h:
    t = dlx.attach(bytes(h), paths=True)
os.truncate({str(tmp_path / "file")!r}, 0)
t.tolist()
"""
    assert run_python(code)[0] == -signal.SIGBUS


# Many rounds.


@pytest.mark.parametrize("kind", ["killed", "interrupted"])
def test_rounds_that_end_at_any_time_leave_nothing(kind: str) -> None:
    """README.md, What happens when: no descriptor, mapping, name or thread."""
    ran = subprocess.run(
        [sys.executable, "-m", f"support.{kind}_rounds", str(ROUNDS), "1"],
        env=SUPPORTED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"{ROUNDS} rounds")


def test_nothing_is_left_behind() -> None:
    """README.md, Sharing: no descriptor and no mapping."""
    dlx.attach(dlx.share(ARRAY))
    files, maps = open_files(), mappings()
    for _ in range(500):
        with dlx.share(ARRAY) as h:
            assert dlx.attach(bytes(h), mode="cow").tolist() == ARRAY.tolist()
            assert dlx.attach(bytes(h)).tolist() == ARRAY.tolist()
    assert (open_files(), mappings()) == (files, maps)


def test_attached_tensors_hold_no_descriptor() -> None:
    """README.md, Sharing: only mappings."""
    files, maps = open_files(), mappings()
    held = [dlx.attach(dlx.share(ARRAY)) for _ in range(3000)]
    assert open_files() == files
    assert mappings() == maps + 3000
    addresses = {t.data_ptr for t in held}
    assert len(addresses) == 3000
    del held
    assert mappings() == maps


def test_memory_lives_to_the_end_of_the_process() -> None:
    """README.md, Sharing: also what is read while the interpreter ends."""
    code = """
import dlx, numpy as np, atexit, sys
h = dlx.share(np.arange(3.0))
a = dlx.attach(h, like=np)
class Late:
    def __init__(self, a): self.a = a
    def __del__(self): assert self.a.tolist() == [0, 1, 2]
sys.late = Late(a)
late = Late(dlx.attach(bytes(h), mode="cow", like=np))
atexit.register(lambda: late.a.tolist())
"""
    assert run_python(code) == (0, "", "")


def test_a_cycle_reads_its_memory_until_it_is_gone() -> None:
    """README.md, Sharing: the collector unmaps after all finalizers."""
    code = """
import dlx, numpy as np, gc
class Node:
    def __init__(self, x): self.me, self.x = self, x
    def __del__(self): read.append(np.asarray(self.x).tolist())
read = []
h = dlx.share(np.arange(3))
views = [
    lambda: dlx.attach(h), lambda: dlx.attach(h, mode="cow"),
    lambda: memoryview(dlx.attach(h).raw()), lambda: dlx.attach(h, like=np),
    lambda: dlx.empty(3, "int64", shared=True), lambda: dlx.attach(h)[1:],
]
for make in views:
    Node(make())
    gc.collect()
assert len(read) == len(views), read
maps = open("/proc/self/maps").read()
assert "memfd:dlx" not in maps, maps
"""
    assert run_python(code) == (0, "", "")


def test_threads_share_and_close_at_once() -> None:
    """README.md, Sharing: a handle closed in another thread is an error."""
    code = """
import dlx, numpy as np, os, threading
from contextlib import suppress
dlx.attach(dlx.share(np.zeros(1)))
files, wrong = len(os.listdir("/proc/self/fd")), []
def attach(h):
    with suppress(BufferError):
        for _ in range(50):
            data = bytes(h)
            for t in dlx.attach(h), dlx.attach(h, mode="cow"), dlx.attach(data):
                if set(t.tolist()) != {t.shape[0]}:
                    wrong.append(t)
def close(h):
    h.close()
for n in range(1, 100):
    h = dlx.share(np.full(n, n))
    steps = attach, attach, close, close
    threads = [threading.Thread(target=step, args=(h,)) for step in steps]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert not wrong, wrong
assert len(os.listdir("/proc/self/fd")) == files
"""
    assert run_python(code) == (0, "", "")
