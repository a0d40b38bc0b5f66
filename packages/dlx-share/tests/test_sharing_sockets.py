"""`Handle.send` and `Handle.recv`: memory sent through a Unix socket."""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_share.sharing import Handle
from dlx_share.sharing._form import HEAD
from hypothesis import given, settings
from hypothesis import strategies as st
from support.python_process import run_python
from support.shared_memory import ARRAY, open_files

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a stream."""
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def deliver(pair: Pair, data: bytes | bytearray, files: list[int]) -> None:
    """Send bytes and descriptors, and nothing after them."""
    one, _ = pair
    if data:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        one.sendmsg([data], ancillary if files else [])
    one.shutdown(socket.SHUT_WR)


def framed(data: bytes | bytearray) -> bytes:
    """The bytes of a handle as they are sent."""
    return struct.pack("<I", len(data)) + data


def test_a_socket_brings_the_memory_along(pair: Pair) -> None:
    """README.md, Sharing: two handles, one after the other."""
    one, other = pair
    with dlx.share(ARRAY) as h, dlx.share(ARRAY + 1) as second:
        for each in h, second:
            each.send(one)
        for each in h, second:
            with Handle.recv(other) as back:
                assert dlx.attach(back).data_ptr == dlx.attach(each).data_ptr
                assert not back.is_copied


def test_what_arrives_is_closed_in_programs_that_are_started(pair: Pair) -> None:
    """README.md, Sharing: no descriptor is inherited."""
    with dlx.share(ARRAY) as h:
        h.send(pair[0])
        with Handle.recv(pair[1]) as back:
            assert fcntl.fcntl(back._file, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_read_only_handle_brings_a_descriptor_that_cannot_write(pair: Pair) -> None:
    """README.md, Security: also where no seal forbids it."""
    x = dlx.empty(6, "float64", shared=True)
    part = dlx.from_pointer(x.data_ptr, (6,), "float64", owner=x, readonly=True)
    with dlx.share(part, copy=False) as h:
        assert h.readonly
        h.send(pair[0])
        with Handle.recv(pair[1]) as back:
            assert fcntl.fcntl(back._file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.pwrite(back._file, b"a", 0)
            with pytest.raises(PermissionError):
                mmap.mmap(back._file, 48)


def test_a_handle_in_many_pieces_arrives(pair: Pair) -> None:
    """README.md, Sharing: a stream has no messages."""
    one, other = pair
    with dlx.share(ARRAY) as h:
        data, files = framed(bytes(h)), [h._file]
        for place in range(len(data)):
            socket.send_fds(one, [data[place : place + 1]], files)
            files = []
        with Handle.recv(other) as back:
            assert dlx.attach(back).tolist() == ARRAY.tolist()


@pytest.mark.parametrize("kept", [0, 1, 4, 5, 100])
def test_a_truncated_handle_is_the_end_of_the_stream(pair: Pair, kept: int) -> None:
    """README.md, Security: an `EOFError`, and its descriptor is closed."""
    with dlx.share(ARRAY) as h:
        deliver(pair, framed(bytes(h))[:kept], [h._file])
        files = open_files()
        with pytest.raises(EOFError):
            Handle.recv(pair[1])
        assert open_files() == files


@pytest.mark.parametrize("count", [0, 2, 3, 200])
def test_another_number_of_descriptors_is_refused(pair: Pair, count: int) -> None:
    """README.md, Security: and all of them are closed."""
    with dlx.share(ARRAY) as h:
        deliver(pair, framed(bytes(h)), [h._file] * count)
        files = open_files()
        with pytest.raises(BufferError, match="one descriptor"):
            Handle.recv(pair[1])
        assert open_files() == files


def test_descriptors_that_come_later_are_dropped(pair: Pair) -> None:
    """README.md, Security: they stay with the kernel."""
    one, other = pair
    with dlx.share(ARRAY) as h:
        data = framed(bytes(h))
        socket.send_fds(one, [data[:9]], [h._file])
        socket.send_fds(one, [data[9:]], [h._file])
        files = open_files()
        with Handle.recv(other) as back:
            assert open_files() == files + 1
            assert dlx.attach(back).tolist() == ARRAY.tolist()
        assert open_files() == files


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        framed(b"a" * HEAD.size),
        framed(b"DLXH" + bytes(HEAD.size)),
    ],
)
def test_what_is_no_handle_is_refused(pair: Pair, sent: bytes) -> None:
    """README.md, Security: before as much is waited for as it says."""
    files = open_files()
    with open("/dev/null") as null:
        deliver(pair, sent, [null.fileno()])
    with pytest.raises(BufferError):
        Handle.recv(pair[1])
    assert open_files() == files


def pipe(_: Path) -> int:
    receiver, sender = os.pipe()
    os.close(receiver)
    return sender


def memfd(_: Path) -> int:
    file = os.memfd_create("dlx", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 48)
    return file


def named_alike(_: Path) -> int:
    """A memfd with the name of a segment, which can be truncated."""
    name = f"dlx-{bytes(16).hex()}"
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 48)
    return file


def on_disk(folder: Path) -> int:
    (folder / "file").write_bytes(bytes(48))
    return os.open(folder / "file", os.O_RDWR)


def a_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY)


def null(_: Path) -> int:
    return os.open("/dev/null", os.O_RDWR)


@pytest.mark.parametrize(
    "make",
    [pipe, memfd, named_alike, on_disk, a_folder, null],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("inode", [False, True])
def test_a_descriptor_of_something_else_is_refused(
    pair: Pair, tmp_path: Path, make: Any, inode: bool
) -> None:
    """README.md, Security: also if the bytes say its inode."""
    with dlx.share(ARRAY) as h:
        file = make(tmp_path)
        found = os.fstat(file)
        data = bytearray(bytes(h))
        if inode:
            struct.pack_into("<QQ", data, 72, found.st_dev, found.st_ino)
            data[32:48] = bytes(16)
        deliver(pair, framed(data), [file])
        os.close(file)
        files = open_files()
        with pytest.raises(BufferError, match=r"not what it says|dlx made none such"):
            Handle.recv(pair[1])
        assert open_files() == files


def test_a_segment_that_can_only_be_read_is_refused_for_writing(pair: Pair) -> None:
    """README.md, Security: when it arrives, not when it is mapped."""
    with dlx.share(ARRAY, readonly=True) as h:
        data = bytearray(bytes(h))
        struct.pack_into("<I", data, 12, 0)  # no flags
        deliver(pair, framed(data), [h._file])
        with pytest.raises(BufferError, match="not what it says"):
            Handle.recv(pair[1])


def test_memory_is_frozen_only_if_the_kernel_says_so(pair: Pair) -> None:
    """README.md, Security: or a private mapping would not be private."""
    with dlx.share(ARRAY) as h:
        data = bytearray(bytes(h))
        struct.pack_into("<I", data, 12, 3)  # read-only, frozen
        deliver(pair, framed(data), [h._file])
        with pytest.raises(BufferError, match="not what it says"):
            Handle.recv(pair[1])


def test_memory_that_others_can_truncate_is_taken_if_asked(pair: Pair) -> None:
    """README.md, Security: `paths=True`, here without a path."""
    block = SharedMemory(create=True, size=64)
    try:
        x: Any = np.ndarray((8,), "f8", buffer=block.buf)
        x[:] = 7
        with dlx.share(x, copy=False) as h:
            for _ in range(2):
                h.send(pair[0])
        files = open_files()
        with pytest.raises(BufferError, match="paths=True"):
            Handle.recv(pair[1])
        assert open_files() == files
        with Handle.recv(pair[1], paths=True) as back:
            assert dlx.attach(back).tolist() == [7] * 8
        del x
    finally:
        block.close()
        block.unlink()


@given(st.data())
@settings(max_examples=200)
def test_forged_messages_give_the_memory_or_an_error(data: st.DataObject) -> None:
    """README.md, Security: and leave no descriptor."""
    files = open_files()
    one, other = socket.socketpair()
    with one, other, dlx.share(ARRAY) as h:
        message = bytearray(framed(bytes(h)))
        places = st.integers(0, len(message) - 1)
        for place in data.draw(st.lists(places, max_size=4)):
            message[place] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(message)))
        kept = message[:cut] if data.draw(st.booleans()) else message
        deliver((one, other), kept, [h._file] * data.draw(st.integers(0, 3)))
        try:
            with Handle.recv(other) as back:
                low, length = dlx.attach(back, mode="r").span
        except (BufferError, EOFError):
            pass
        else:
            whole = dlx.attach(h, mode="r").span
            assert not length or whole[0] <= low
            assert not length or low + length <= whole[0] + whole[1]
    assert open_files() == files


def test_a_closed_handle_is_not_sent(pair: Pair) -> None:
    """README.md, Sharing."""
    h = dlx.share(ARRAY)
    h.close()
    with pytest.raises(BufferError, match="closed"):
        h.send(pair[0])


def test_only_streams_are_taken() -> None:
    """README.md, Sharing: others have no descriptors, or cut messages."""
    one, other = socket.socketpair(type=socket.SOCK_DGRAM)
    with one, other, dlx.share(ARRAY) as h:
        with pytest.raises(ValueError, match="stream of AF_UNIX"):
            h.send(one)
        with pytest.raises(ValueError, match="stream of AF_UNIX"):
            Handle.recv(other)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("readonly", [False, True])
def test_another_user_gets_memory_by_a_socket_only(readonly: bool) -> None:
    """README.md, Security: segments have mode 0600."""
    code = f"""
import os, socket, sys
import dlx, numpy as np, pytest
from dlx_share.sharing import Handle
one, other = socket.socketpair()
h = dlx.share(np.arange(6.0), readonly={readonly})
data = bytes(h)
if (pid := os.fork()) == 0:
    try:
        file = h._file
        h.close()
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        with pytest.raises(BufferError, match="of another user; send the handle"):
            dlx.attach(data)
        with pytest.raises(BufferError):
            dlx.attach("shm:other")
        back = Handle.recv(other)
        t = dlx.attach(back)
        assert t.tolist() == list(range(6))
        assert t.readonly == {readonly}
        with pytest.raises(PermissionError):
            os.open(f"/proc/self/fd/{{back._file}}", os.O_RDWR)
        if not t.readonly:
            np.from_dlpack(t)[0] = 7
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)
h.send(one)
assert os.waitpid(pid, 0)[1] == 0
assert dlx.attach(h).tolist()[0] == (0 if {readonly} else 7)
"""
    assert run_python(code) == (0, "", "")
