"""Forged and damaged handles: a `BufferError`, never other memory."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from dlx._core import OpenFile
from dlx_share.sharing import Handle, _form, _segment
from dlx_share.sharing._mappings import Mapping
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.random_layouts import tensors
from support.shared_memory import ARRAY, child, mappings, open_files, told

# Places of the fields of 32 bits and of 64.
FLAGS, FILE, NDIM = 12, 60, 116
NAMESPACE, START, DEVICE, INODE, SIZE, OFFSET = 48, 64, 72, 80, 88, 96
NUMBERS = st.one_of(
    st.integers(0, 200),
    st.integers(0, 2**64 - 1),
    st.sampled_from([2**n + d for n in (31, 32, 47, 62, 63) for d in (-1, 0, 1)]),
)


def attached(data: bytes, h: Handle) -> None:
    """Attach what bytes name: elements of the segment of `h`, or a `BufferError`.

    That its memory is mapped here already changes nothing.
    """
    accepted = [attached_once(data, h)]
    for mode in ("r", "rw"):
        here = dlx.attach(h, mode=mode)
        accepted.append(attached_once(data, h))
        del here
    assert len(set(accepted)) == 1


def attached_once(data: bytes, h: Handle) -> bool:
    """Attach what bytes name, and return whether it was."""
    files = open_files()
    try:
        t = dlx.attach(data, mode="r")
    except BufferError:
        assert open_files() == files
        return False
    low, length = t.span
    begin, whole = dlx.attach(h, mode="r").span
    if length:
        assert begin <= low
        assert low + length <= begin + whole
        assert len(repr(t)) > 0
    assert open_files() == files
    return True


@given(st.data())
@settings(max_examples=300)
def test_changed_bytes_never_give_other_memory(data: st.DataObject) -> None:
    """README.md, Security: any byte, and any length."""
    with dlx.share(ARRAY) as h:
        text = bytearray(bytes(h))
        places = st.integers(0, len(text) - 1)
        for place in data.draw(st.lists(places, min_size=1, max_size=4)):
            text[place] = data.draw(st.integers(0, 255))
        text = text[: data.draw(st.sampled_from([len(text), len(text) - 1, 120, 9]))]
        attached(bytes(text), h)


@given(
    st.lists(st.tuples(st.sampled_from([SIZE, OFFSET, INODE, DEVICE]), NUMBERS)),
    st.lists(NUMBERS, max_size=8),
    st.lists(NUMBERS, max_size=8),
    st.sampled_from(
        [(2, 64, 1), (2, 64, 65535), (4, 16, 1), (1, 255, 255), (17, 4, 1)]
    ),
    st.integers(0, 7),
)
@settings(max_examples=500)
@example([], [2**63, 2], [1, 1], (2, 64, 1), 0)
@example([], [2**32, 2**32], [2**31, 2**31], (2, 64, 65535), 0)
@example([(OFFSET, 2**64 - 8)], [1], [1], (2, 64, 1), 0)
def test_fields_that_overflow_never_give_other_memory(
    fields: list[tuple[int, int]],
    shape: list[int],
    strides: list[int],
    dtype: tuple[int, int, int],
    flags: int,
) -> None:
    """README.md, Security: offsets, extents, strides and sizes."""
    with dlx.share(np.arange(32.0)) as h:
        text = bytearray(bytes(h)[: _form.HEAD.size])
        for place, number in fields:
            struct.pack_into("<Q", text, place, number)
        ndim = min(len(shape), len(strides))
        text += struct.pack(f"<{2 * ndim}Q", *shape[:ndim], *strides[:ndim])
        struct.pack_into("<I", text, 8, len(text))
        struct.pack_into("<BBH", text, 104, *dtype)
        struct.pack_into("<I", text, FLAGS, flags)
        struct.pack_into("<I", text, NDIM, ndim)
        attached(bytes(text), h)


@pytest.mark.parametrize("ndim", [3, 65, 2**16, 2**31, 2**32 - 1])
def test_more_dimensions_than_there_are_bytes_are_refused(ndim: int) -> None:
    """README.md, Security: before as many are read."""
    with dlx.share(ARRAY) as h:
        text = bytearray(bytes(h)) + bytes(16 * 65 if ndim == 65 else 0)
        struct.pack_into("<I", text, NDIM, ndim)
        struct.pack_into("<I", text, 8, len(text))
        with pytest.raises(BufferError):
            dlx.attach(bytes(text))


@pytest.mark.parametrize("value", [b"", b"DLXH", bytes(500), b"\x80\x05N."])
def test_what_is_no_handle_is_refused(value: bytes) -> None:
    """README.md, Security: nothing is unpickled."""
    with pytest.raises(BufferError, match="not the bytes of a"):
        dlx.attach(value)


@given(tensors())
def test_the_length_that_is_checked_is_that_of_the_tensor(t: dlx.Tensor) -> None:
    """README.md, Security: of every dtype and layout."""
    flags = 4 * t.is_padded
    assert _form.span(t.shape, t.strides, t.dtype, flags) == t.span[1]


def test_versions_and_kinds_to_come_are_told() -> None:
    """README.md, Security: by name."""
    with dlx.share(ARRAY) as h:
        for place, match in (4, "version 2"), (6, "kind 9"):
            text = bytearray(bytes(h))
            text[place] = 2 if place == 4 else 9
            with pytest.raises(BufferError, match=match):
                dlx.attach(bytes(text))


def test_fields_and_flags_to_come_are_skipped() -> None:
    """README.md, Security: within a version."""
    with dlx.share(ARRAY) as h:
        text = bytearray(bytes(h)) + b"new"
        struct.pack_into("<I", text, 8, len(text))
        struct.pack_into("<I", text, FLAGS, 1 << 20)
        assert dlx.attach(bytes(text)).tolist() == ARRAY.tolist()


# What a descriptor may be.


def pipe(folder: Path) -> int:
    os.mkfifo(folder / "pipe")
    return os.open(folder / "pipe", os.O_RDWR)


def memfd(_: Path) -> int:
    file = os.memfd_create("dlx", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 48)
    return file


def alike(_: Path) -> int:
    """A memfd with the name of a segment, without the seals."""
    name = f"dlx-{_segment.TOKEN.hex()}"
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 48)
    return file


def of_another_process(_: Path) -> int:
    """A segment whose token the bytes do not know."""
    with OpenFile.segment(f"dlx-{bytes(16).hex()}", 48) as file:
        return os.dup(file.fileno())


def on_disk(folder: Path) -> int:
    (folder / "file").write_bytes(bytes(48))
    return os.open(folder / "file", os.O_RDWR)


def on_tmpfs(_: Path) -> int:
    path = f"/dev/shm/test-{os.getpid()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    os.truncate(file, 48)
    return file


def a_socket(_: Path) -> int:
    return socket.socket().detach()


OPEN: list[Callable[[Path], int]] = [
    *(pipe, memfd, alike, of_another_process, on_disk, on_tmpfs, a_socket),
    lambda folder: os.open(folder, os.O_RDONLY),
    lambda _: os.open("/dev/zero", os.O_RDWR),
    lambda _: os.open("/proc/self/mem", os.O_RDWR),
]


@pytest.mark.parametrize("make", OPEN)
@pytest.mark.parametrize("inode", [False, True])
@pytest.mark.parametrize("kind", [1, 3])
def test_only_segments_of_dlx_are_opened(
    tmp_path: Path, make: Callable[[Path], int], inode: bool, kind: int
) -> None:
    """README.md, Security: not what a descriptor happens to be."""
    with dlx.share(ARRAY) as h:
        file = make(tmp_path)
        text, found = bytearray(bytes(h)), os.fstat(file)
        struct.pack_into("<i", text, FILE, file)
        struct.pack_into("<H", text, 6, kind)
        if inode:
            struct.pack_into("<QQ", text, DEVICE, found.st_dev, found.st_ino)
        files = open_files()
        with pytest.raises(BufferError):
            dlx.attach(bytes(text))
        with pytest.raises(BufferError):
            Handle(bytes(text))
        assert open_files() == files
        os.close(file)


def test_no_device_is_opened_to_look_at_it(tmp_path: Path) -> None:
    """README.md, Security: a pipe without a reader would block."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with dlx.share(np.memmap(tmp_path / "file", "f8", "w+", shape=4)) as h:
        data = bytes(h)
    (tmp_path / "file").unlink()
    path.rename(tmp_path / "file")
    with pytest.raises(BufferError, match="not what it says"):
        dlx.attach(data, paths=True)


@pytest.mark.parametrize("file", [-1, 2**31 - 1, 10**6])
def test_a_descriptor_that_nobody_has_is_told(file: int) -> None:
    """README.md, Security: as a handle that was closed."""
    with dlx.share(ARRAY) as h:
        text = bytearray(bytes(h))
        struct.pack_into("<i", text, FILE, file)
        with pytest.raises(BufferError, match="was closed"):
            dlx.attach(bytes(text))


def test_bytes_open_no_path_unless_asked(tmp_path: Path) -> None:
    """README.md, Security: paths=True; a pickle may, as it runs code."""
    x = np.memmap(tmp_path / "numbers", "f8", "w+", shape=(4,))
    with dlx.share(x, copy=False) as h:
        for use in dlx.attach, Handle:
            with pytest.raises(BufferError, match="pass paths=True"):
                use(bytes(h))
        assert dlx.attach(bytes(h), paths=True).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "path", [b"", b"relative", b"/a\0b", b"/nowhere", b"/dev/null"]
)
def test_a_forged_path_is_refused(tmp_path: Path, path: bytes) -> None:
    """README.md, Security: also with paths=True."""
    x = np.memmap(tmp_path / "numbers", "f8", "w+", shape=(4,))
    with dlx.share(x, copy=False) as h:
        end = _form.HEAD.size + 16
        text = bytearray(bytes(h)[:end]) + len(path).to_bytes(4, "little") + path
        struct.pack_into("<I", text, 8, len(text))
        with pytest.raises(BufferError):
            dlx.attach(bytes(text), paths=True)


def test_a_path_that_became_a_link_is_refused(tmp_path: Path) -> None:
    """README.md, Security: also one to the same file."""
    path = tmp_path / "numbers"
    with dlx.share(np.memmap(path, "f8", "w+", shape=(4,)), copy=False) as h:
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
        with pytest.raises(BufferError, match="not what it says"):
            dlx.attach(bytes(h), paths=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_memory_of_another_user_is_refused() -> None:
    """README.md, Security: also for root, who may open it."""
    code = """
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
h = dlx.share(np.arange(3))
tell(bytes(h))
into.read()
"""
    with child(code) as process:
        data = told(process)
        files = open_files()
        with pytest.raises(BufferError, match="of another user"):
            dlx.attach(data)
        assert open_files() == files


# What is exchanged while dlx looks at it.


def test_a_descriptor_exchanged_while_it_is_opened_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """README.md, Security: what O_PATH has found stays what it is."""
    h, other = dlx.share(ARRAY), dlx.share(ARRAY + 1)
    data, opened = bytes(h), []

    class Exchanging:
        @staticmethod
        def open(path: str, flags: int) -> OpenFile:
            file = OpenFile.open(path, flags)
            if path.endswith(f"{os.getpid()}/fd/{h._file}"):
                opened.append(path)
                os.dup2(other._file, h._file)
            return file

    monkeypatch.setattr(_segment, "OpenFile", Exchanging)
    t = dlx.attach(data)
    monkeypatch.undo()
    assert len(opened) == 1
    assert t.tolist() == ARRAY.tolist()
    with pytest.raises(BufferError, match="not what it says"):
        dlx.attach(data)
    h.close()
    other.close()


def test_a_handle_whose_file_is_exchanged_while_it_is_mapped_gives_no_other_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """README.md, Security: by somebody who closes the descriptors of others."""
    h, other = dlx.share(ARRAY), dlx.share(ARRAY + 1)
    real, before = Mapping.of, mappings()

    def exchanging(*arguments: Any) -> Mapping:
        os.dup2(other._file, h._file)
        return real(*arguments)

    monkeypatch.setattr(Mapping, "of", exchanging)
    with pytest.raises(BufferError, match="closed"):
        dlx.attach(h)
    monkeypatch.undo()
    assert mappings() == before
    other.close()


def test_a_descriptor_that_somebody_else_closed_gives_no_other_memory() -> None:
    """README.md, Security: as a daemon does, which closes all."""
    h, other = dlx.share(ARRAY), dlx.share(ARRAY + 1)
    data = bytes(h)
    os.dup2(other._file, h._file)
    with pytest.raises(BufferError, match="closed"):
        dlx.attach(h)
    with pytest.raises(BufferError, match="not what it says"):
        dlx.attach(data)
    h.close()
    other.close()


def test_memory_shared_again_by_such_a_descriptor_is_told() -> None:
    """README.md, Security: it is sent to nobody, and nothing is sealed."""
    h, other = dlx.share(ARRAY), dlx.share(ARRAY + 1)
    t = dlx.attach(h)
    os.dup2(other._file, h._file)
    again = dlx.share(t, copy=False)
    assert dlx.attach(again).tolist() == ARRAY.tolist()  # It is mapped here.
    with pytest.raises(BufferError, match="not what it says"):
        dlx.attach(bytes(again))
    one, there = socket.socketpair()
    with one, there, pytest.raises(BufferError, match="closed"):
        again.send(one)
    with pytest.raises(dlx.CopyRefused):
        dlx.share(t, copy=False, readonly=True)
    assert not dlx.attach(bytes(other), mode="rw").readonly
    for each in again, h, other:
        each.close()


def test_a_token_needs_no_start_of_the_process_and_a_block_does() -> None:
    """README.md, What happens when: who has the PID now may have the memory."""
    with dlx.share(ARRAY) as h:
        text = bytearray(bytes(h))
        text[START] ^= 1
        attached(bytes(text), h)
    block = SharedMemory(create=True, size=64)
    try:
        x: Any = np.ndarray((8,), "f8", buffer=block.buf)
        with dlx.share(x, copy=False) as h:
            text = bytearray(bytes(h))
            assert dlx.attach(bytes(text), paths=True).shape == (8,)
            text[START] ^= 1
            with pytest.raises(BufferError, match="is gone"):
                dlx.attach(bytes(text), paths=True)
        del x
    finally:
        block.close()
        block.unlink()
