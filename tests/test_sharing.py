"""`dlx.share` and `dlx.attach`: one memory in several processes of a host."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from dlx.sharing import Handle
from hypothesis import given, settings
from hypothesis import strategies as st
from support.optional_libraries import requires
from support.random_layouts import tensors, values

ARRAY = np.arange(6.0).reshape(2, 3)


def open_files() -> int:
    """Count the descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    """Count the mappings of segments in this process."""
    return Path("/proc/self/maps").read_text().count("/memfd:dlx-")


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python code in another process, connected by pipes."""
    begin = "import sys, os, pickle, dlx, numpy as np; from dlx.sharing import Handle\n"
    begin += "out, into = sys.stdout.buffer, sys.stdin.buffer\n"
    with subprocess.Popen(
        [sys.executable, "-c", begin + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


EXPORTER = """
h = dlx.share(np.arange(6.0).reshape(2, 3), readonly=READONLY)
pickle.dump(bytes(h), out)
out.flush()
for command in into:
    out.write(b"%f" % dlx.attach(h).tolist()[0][0])
    out.flush()
"""


@contextmanager
def exporter(readonly: bool = False) -> Iterator[tuple[Any, bytes]]:
    """Have another process share an array; yield it and the bytes of its handle."""
    with child(EXPORTER.replace("READONLY", str(readonly))) as process:
        assert process.stdout is not None
        yield process, pickle.load(process.stdout)


@given(tensors())
def test_every_tensor_is_attached_as_it_was(t: dlx.Tensor) -> None:
    """docs/sharing.md, Sharing: any dtype and layout."""
    with dlx.share(t) as h:
        back = dlx.attach(bytes(h))
    assert (back.shape, back.dtype, back.is_padded) == (t.shape, t.dtype, t.is_padded)
    assert values(back) == values(t)


def test_two_processes_have_one_memory() -> None:
    """docs/sharing.md, Sharing: what one writes, the other reads."""
    with exporter() as (process, data):
        t = dlx.attach(data)
        assert t.tolist() == ARRAY.tolist()
        np.from_dlpack(t)[0, 0] = 7
        process.stdin.write(b"read\n")
        process.stdin.flush()
        assert process.stdout.read(8) == b"7.000000"


def test_a_handle_attaches_to_one_mapping() -> None:
    """docs/sharing.md, Sharing: in the exporting process, the memory itself."""
    with dlx.share(ARRAY) as h:
        one, other = dlx.attach(h), dlx.attach(bytes(h))
        assert one.data_ptr == other.data_ptr


def test_memory_that_is_shared_already_is_not_copied() -> None:
    """docs/sharing.md, Sharing: also a part of it."""
    with dlx.share(ARRAY) as h:
        t = dlx.attach(h)
        with dlx.share(t[1, ::-1], copy=False) as part:
            assert (h.is_copied, part.is_copied) == (True, False)
            assert dlx.attach(part).data_ptr == t[1, ::-1].data_ptr
            assert dlx.attach(part).tolist() == ARRAY[1, ::-1].tolist()


def test_other_memory_is_copied_or_refused() -> None:
    """docs/sharing.md, Sharing: the tensor keeps its own."""
    array = ARRAY.copy()
    with dlx.share(array) as h:
        np.from_dlpack(dlx.attach(h))[0, 0] = 7
    assert array[0, 0] == 0
    with pytest.raises(dlx.CopyRefused, match="memory of this process alone"):
        dlx.share(array, copy=False)


def test_memory_on_a_device_is_refused() -> None:
    """docs/sharing.md, Sharing: not silently copied to the host."""
    t = dlx.from_pointer(4096, (2,), "float32", device="cuda:0")
    with pytest.raises(BufferError, match="cuda:0"):
        dlx.share(t)


# Who may write.


def test_the_kernel_refuses_writes_to_frozen_memory() -> None:
    """docs/sharing.md, Sharing: tried by writing, in three ways."""
    with exporter(readonly=True) as (_, data):
        h = Handle(data)
        with pytest.raises(ValueError, match="read-only"):
            np.from_dlpack(dlx.attach(h))[0, 0] = 7
        with pytest.raises(BufferError, match="read-only"):
            dlx.attach(h, mode="rw")
        described = h._described
        path = f"/proc/{described.pid}/fd/{described.file}"
        file = os.open(path, os.O_RDWR)
        with pytest.raises(PermissionError):
            os.pwrite(file, b"a", 0)
        with pytest.raises(PermissionError):
            mmap.mmap(file, 48)
        os.close(file)


def test_writes_to_a_private_mapping_stay_private() -> None:
    """docs/sharing.md, Sharing: mode "cow"."""
    with dlx.share(ARRAY, readonly=True) as h:
        np.from_dlpack(dlx.attach(h, mode="cow"))[0, 0] = 7
        assert dlx.attach(h).tolist() == ARRAY.tolist()


def test_torch_gets_frozen_memory_without_a_copy() -> None:
    """docs/sharing.md, Sharing: a private mapping, whose writes stay private."""
    torch = requires("torch")
    with dlx.share(ARRAY, readonly=True) as h:
        before = mappings()
        x = dlx.attach(h, like=torch)
        assert mappings() == before + 1
        x[0, 0] = 7
        assert dlx.attach(h).tolist() == ARRAY.tolist()


def test_jax_writes_and_torch_reads_the_same_pages() -> None:
    """docs/sharing.md, Sharing: two libraries, one memory."""
    torch, jnp = requires("torch"), requires("jax.numpy")
    with dlx.share(jnp.arange(6, dtype="bfloat16")) as h:
        one, other = dlx.attach(h, like=torch), dlx.attach(bytes(h), like="numpy")
        one[0] = 7
        assert one.dtype == torch.bfloat16
        assert other[0] == 7


# How it ends.


def test_attached_tensors_outlive_handle_and_exporter() -> None:
    """docs/sharing.md, Sharing: the kernel counts."""
    with exporter() as (process, data):
        t = dlx.attach(data)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert t.tolist() == ARRAY.tolist()
        with pytest.raises(BufferError, match="is gone"):
            dlx.attach(data)


def test_a_handle_that_has_arrived_holds_the_memory() -> None:
    """docs/sharing.md, Sharing: and names this process to the next."""
    with exporter() as (process, data):
        h = Handle(data)
        process.kill()
        process.wait()
        again = pickle.loads(pickle.dumps(h))
        h.close()
        assert dlx.attach(again).tolist() == ARRAY.tolist()


def test_a_closed_handle_is_told() -> None:
    """docs/sharing.md, Sharing: what to keep."""
    h = dlx.share(ARRAY)
    data = bytes(h)
    h.close()
    assert repr(h) == "dlx.Handle(closed)"
    for use in bytes, dlx.attach, pickle.dumps:
        with pytest.raises(BufferError, match="closed"):
            use(h)
    with pytest.raises(BufferError, match="closed"):
        dlx.attach(data)


def test_a_descriptor_used_again_is_never_attached() -> None:
    """docs/sharing.md, Sharing: inode and seals are compared."""
    h = dlx.share(ARRAY)
    data = bytes(h)
    h.close()
    with dlx.share(ARRAY + 1) as other:
        assert other._file == h._file
        with pytest.raises(BufferError, match="gone"):
            dlx.attach(data)


def test_nothing_is_left_behind() -> None:
    """docs/sharing.md, Sharing: no descriptor and no mapping."""
    dlx.attach(dlx.share(ARRAY))
    files, maps = open_files(), mappings()
    for _ in range(1000):
        with dlx.share(ARRAY) as h:
            assert dlx.attach(bytes(h), mode="cow").tolist() == ARRAY.tolist()
    assert (open_files(), mappings()) == (files, maps)


def test_attached_tensors_hold_no_descriptor() -> None:
    """docs/sharing.md, Sharing: only mappings."""
    files = open_files()
    held = [dlx.attach(dlx.share(ARRAY)) for _ in range(100)]
    assert open_files() == files
    assert len(held) == 100


def test_a_killed_attacher_leaves_nothing_behind() -> None:
    """docs/sharing.md, Sharing: mapping and descriptor go with it."""
    with (
        dlx.share(ARRAY) as h,
        child(
            "t = dlx.attach(pickle.load(into))\n"
            "out.write(b'.'), out.flush(), into.read()"
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump(h, process.stdin)
        process.stdin.flush()
        assert process.stdout.read(1) == b"."
        process.kill()
        process.wait()
        assert dlx.attach(h).tolist() == ARRAY.tolist()


# Sockets.


def test_a_socket_brings_the_memory_along() -> None:
    """docs/sharing.md, Sharing: to processes that cannot look it up."""
    one, other = socket.socketpair()
    with one, other, dlx.share(ARRAY) as h:
        h.send(one)
        with Handle.recv(other) as back:
            assert dlx.attach(back).data_ptr == dlx.attach(h).data_ptr


@pytest.mark.parametrize(
    "sent", [b"", b"\x01", b"\0\0\0\0", struct.pack("<I", 130) + b"a" * 130]
)
def test_what_is_no_handle_is_refused(sent: bytes) -> None:
    """docs/sharing.md, Security: and its files are closed."""
    one, other = socket.socketpair()
    files = open_files()
    with one, other:
        if sent:
            with open("/dev/null") as null:
                socket.send_fds(one, [sent], [null.fileno()])
        one.shutdown(socket.SHUT_WR)
        with pytest.raises((BufferError, EOFError)):
            Handle.recv(other)
    assert open_files() == files - 2


# Forged handles.


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_forged_bytes_never_give_other_memory(data: st.DataObject) -> None:
    """docs/sharing.md, Security: a `BufferError`, or these elements."""
    with dlx.share(ARRAY) as h:
        text = bytearray(bytes(h))
        places = st.integers(0, len(text) - 1)
        for place in data.draw(st.lists(places, min_size=1, max_size=4)):
            text[place] = data.draw(st.integers(0, 255))
        text = text[: data.draw(st.sampled_from([len(text), len(text) - 1, 120, 9]))]
        try:
            t = dlx.attach(bytes(text))
        except BufferError:
            return
        low, length = t.span
        whole = dlx.attach(h).span if not t.readonly else dlx.attach(h, mode="r").span
        if length:
            assert whole[0] <= low
            assert low + length <= whole[0] + whole[1]


def test_only_segments_of_dlx_are_opened() -> None:
    """docs/sharing.md, Security: not what a descriptor happens to be."""
    with dlx.share(ARRAY) as h:
        text = bytearray(bytes(h))
        for file in range(3):
            struct.pack_into("<i", text, 60, file)
            with pytest.raises(BufferError):
                dlx.attach(bytes(text))
        unsealed = os.memfd_create("dlx", os.MFD_ALLOW_SEALING)
        os.ftruncate(unsealed, 48)
        struct.pack_into("<i", text, 60, unsealed)
        with pytest.raises(BufferError):
            dlx.attach(bytes(text))
        os.close(unsealed)


def test_another_boot_and_another_namespace_are_told() -> None:
    """docs/sharing.md, Sharing: the handle arrives, and attach says which."""
    with dlx.share(ARRAY) as h:
        for place, match in (16, "another host"), (48, "PID namespace"):
            text = bytearray(bytes(h))
            text[place] ^= 1
            with pytest.raises(BufferError, match=match):
                dlx.attach(bytes(text))


def test_a_fork_has_the_same_memory() -> None:
    """docs/sharing.md, Sharing: writes are seen by both."""
    code = """
h = dlx.share(np.zeros(2))
a = np.from_dlpack(dlx.attach(h))
if (pid := os.fork()) == 0:
    a[0] = 7
    assert dlx.attach(bytes(h)).tolist() == [7.0, 0.0]
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(a.tolist())
"""
    with child(code) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"[7.0, 0.0]\n"
