"""`dlx.share` of memory that is in a shared mapping already."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_share.sharing import Handle, _found, _mappings
from support.optional_libraries import requires
from support.shared_memory import ask, child, open_files


def place(x: object) -> tuple[tuple[int, int], int]:
    """Return the file that a tensor is in, and where."""
    at = _found.found(*dlx.from_dlpack(x).span)
    assert not isinstance(at, str)
    return at.inode, at.offset


@pytest.fixture(params=["PROCMAP_QUERY", "/proc/self/maps"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find mappings by the one and by the other, as before Linux 6.11."""
    if request.param == "/proc/self/maps":
        # As another kernel answers: ENOTTY.
        monkeypatch.setattr(_found, "_PROCMAP_QUERY", 0x6601)


@pytest.fixture
def block() -> Iterator[SharedMemory]:
    """Shared memory of Python."""
    made = SharedMemory(create=True, size=8192)
    try:
        yield made
    finally:
        made.close()
        made.unlink()


def test_the_kernel_tells_the_same_as_its_list() -> None:
    """README.md, Sharing: by PROCMAP_QUERY, or /proc/self/maps."""
    with mmap.mmap(-1, 8192) as shared:
        address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
        told = [_found.area(address + 5), _found.listed(address + 5)]
        assert told[0] == told[1]
        assert told[0] is not None
        assert told[0].is_shared
        assert told[0].path == "/dev/zero (deleted)"
    assert _found.area(id(told)) == _found.listed(id(told))
    assert _found.area(0) is _found.listed(0) is None


def test_a_path_with_a_line_feed_is_told_alike(tmp_path: Path) -> None:
    """README.md, Sharing: the list writes it as an escape."""
    path = tmp_path / "a b\nc"
    x = np.memmap(path, "u1", "w+", shape=(9,))
    told = [_found.area(x.ctypes.data), _found.listed(x.ctypes.data)]
    assert told[0] == told[1]
    assert told[0] is not None
    assert told[0].path == str(path)


@pytest.mark.usefixtures("_by")
def test_shared_memory_of_python_is_not_copied(block: SharedMemory) -> None:
    """README.md, Sharing: an array over `multiprocessing.shared_memory`."""
    x: Any = np.ndarray((8,), "f8", buffer=block.buf)[2:]
    x[:] = 1
    with dlx.share(x, copy=False) as h:
        assert not h.is_copied
        assert place(dlx.attach(h)) == place(x)
        with child(
            "tell(); t = dlx.attach(pickle.load(into), like=np)\nt[0] = 7\ntell()"
        ) as p:
            ask(p, h)
            ask(p)
    assert x[0] == 7
    del x


@pytest.mark.usefixtures("_by")
def test_shared_memory_of_torch_is_not_copied() -> None:
    """README.md, Sharing: a tensor after `share_memory_()`."""
    torch = requires("torch")
    x = torch.zeros(3, 4, dtype=torch.bfloat16).share_memory_()
    with dlx.share(x.T, copy=False) as h:
        assert place(dlx.attach(h, like=torch)) == place(x)
        with Handle(bytes(h), paths=True) as other:
            dlx.attach(other, like=torch)[1, 2] = 7
    assert x[2, 1] == 7


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_file_that_is_mapped_shared_is_not_copied(tmp_path: Path, mode: Any) -> None:
    """README.md, Sharing: `np.memmap`; what is read-only stays so."""
    path = tmp_path / "numbers"
    np.arange(2000.0).tofile(path)
    x = np.memmap(path, "f8", mode, shape=(2000,))
    with dlx.share(x[1000:], copy=False) as h:
        assert h.readonly == (mode == "r")
        assert place(dlx.attach(h)) == place(x[1000:])
        assert dlx.attach(h).readonly == h.readonly
        with child("tell(dlx.attach(pickle.load(into)).tolist()[:2])") as process:
            assert ask(process, h) == [1000, 1001]


def test_the_bytes_of_a_file_are_enough_without_its_exporter(tmp_path: Path) -> None:
    """README.md, Sharing: they name its path."""
    path = tmp_path / "numbers"
    np.arange(4.0).tofile(path)
    with dlx.share(np.memmap(path, "f8", "r"), copy=False) as h:
        data = bytes(h)
    assert dlx.attach(data, paths=True).tolist() == [0, 1, 2, 3]
    path.rename(tmp_path / "other")
    with pytest.raises(BufferError, match="No such file"):
        dlx.attach(data, paths=True)
    np.arange(5.0).tofile(path)
    with pytest.raises(BufferError, match="not what it says"):
        dlx.attach(data, paths=True)


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    """README.md, Security: reading past its end would be SIGBUS."""
    path = tmp_path / "numbers"
    x = np.memmap(path, "f8", "w+", shape=(2000,))
    with dlx.share(x, copy=False) as h:
        data = bytes(h)
        os.truncate(path, 8000)
        with pytest.raises(BufferError, match="not what it says"):
            dlx.attach(data, paths=True)
        with pytest.raises(dlx.CopyRefused, match="longer than the file"):
            dlx.share(x, copy=False)


def private(path: Path) -> Any:
    return np.memmap(path, "f8", "c", shape=(4,))


def unlinked(path: Path) -> Any:
    x = np.memmap(path, "f8", "r+", shape=(4,))
    path.unlink()
    return x


def anonymous(_: Path) -> Any:
    return np.frombuffer(mmap.mmap(-1, 64), "f8")


def attached(_: Path) -> Any:
    with dlx.share(np.zeros(3)) as h:
        return dlx.attach(h)


def unaligned(_: Path) -> Any:
    whole = dlx.empty(64, "uint8", shared=True)
    array = np.ndarray((2,), "f8", buffer=whole.numpy(), offset=4)
    array[:] = 3
    return array


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda _: np.zeros(3), "memory of this process alone"),
        (private, "a private mapping of '.*numbers', which may hold changed pages"),
        (unlinked, r"a mapping of '.*numbers \(deleted\)', which no path"),
        (anonymous, "a mapping of '/dev/zero"),
        (attached, "memory of which this process has no open handle"),
        (unaligned, "not aligned"),
    ],
)
def test_copy_false_says_which_memory_it_is(
    tmp_path: Path, make: Callable[[Path], Any], match: str
) -> None:
    """README.md, Sharing: and what to call; without it, a copy is made."""
    path = tmp_path / "numbers"
    np.zeros(4).tofile(path)
    x = make(path)
    files = open_files()
    with pytest.raises(dlx.CopyRefused, match=match) as refused:
        dlx.share(x, copy=False)
    assert "dlx.empty(shape, dtype, shared=True)" in str(refused.value)
    assert open_files() <= files
    with dlx.share(x) as h:
        assert h.is_copied
        assert dlx.attach(h).tolist() == dlx.from_dlpack(x).tolist()


def test_changed_pages_of_a_private_mapping_are_shared_as_a_copy(
    tmp_path: Path,
) -> None:
    """README.md, Sharing: nobody else would see them."""
    np.zeros(4).tofile(tmp_path / "numbers")
    x = private(tmp_path / "numbers")
    x[0] = 7
    with dlx.share(x) as h:
        assert dlx.attach(bytes(h)).tolist() == [7, 0, 0, 0]


def test_a_mapping_in_two_parts_is_found_as_one(block: SharedMemory) -> None:
    """README.md, Sharing: protection and advice divide a mapping."""
    x: Any = np.ndarray((8192,), "u1", buffer=block.buf)
    libc = ctypes.CDLL(None)
    begin = ctypes.c_void_p(x.ctypes.data)
    assert libc.madvise(begin, ctypes.c_size_t(4096), 16) == 0  # MADV_DONTDUMP
    area = _found.area(x.ctypes.data)
    assert area is not None
    assert area.end - area.begin == 4096
    with dlx.share(x, copy=False) as h:
        assert place(dlx.attach(h)) == place(x)
        assert dlx.attach(h).shape == (8192,)
    assert libc.mprotect(begin, ctypes.c_size_t(4096), mmap.PROT_READ) == 0
    with dlx.share(x, copy=False) as h:
        assert h.readonly
    del x


def test_the_mapping_lives_as_long_as_an_attached_tensor(tmp_path: Path) -> None:
    """README.md, Sharing: not only as long as the array that was shared."""
    x = np.memmap(tmp_path / "numbers", "f8", "w+", shape=(4,))
    h = dlx.share(x, copy=False)
    t = dlx.attach(h)
    address = t.data_ptr
    del x, h
    np.from_dlpack(t)[0] = 7
    assert t.tolist() == [7, 0, 0, 0]
    del t
    assert _found.area(address) is None


@pytest.mark.parametrize("after", [mmap.mmap.close, lambda m: m.resize(1 << 24)])
def test_a_mapping_that_others_end_is_not_attached(
    after: Callable[[mmap.mmap], None],
) -> None:
    """README.md, Sharing: NumPy does not keep it, and it may be anything then."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(8192)
        lent = mmap.mmap(file.fileno(), 8192)
        x: Any = np.ndarray((8,), "f8", buffer=lent)
        x[:] = 1
        with dlx.share(x, copy=False) as h:
            before = dlx.attach(h)
            del x
            after(lent)
            # Any of these may be where it was.
            others = [mmap.mmap(-1, 8192) for _ in range(8)]
            for other in others:
                other.write(bytes(range(64)))
            assert before.tolist() == dlx.attach(h).tolist() == [1] * 8
            assert dlx.attach(bytes(h), paths=True).tolist() == [1] * 8


@pytest.mark.parametrize("is_open", [True, False])
def test_memory_of_system_v_is_not_taken_for_a_segment(
    monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """README.md, Sharing: its id is shown as inode, on the device of segments."""
    segment = dlx.empty(4, "float64", shared=True)
    with dlx.share(segment) as h:
        inode = h._described.inode
        if not is_open:  # Only its descriptor is found.
            monkeypatch.setattr("dlx_share.sharing.open_handles", {})
        x: Any = np.frombuffer(mmap.mmap(-1, 4096), "f8", count=4)
        path = "/SYSV00000000 (deleted)"

        # The id is a counter: to have it meet the inode takes thousands of segments.
        def area(address: int) -> _found.Area:
            begin = x.ctypes.data
            return _found.Area(begin, begin + 4096, 0, inode, True, True, path)

        found = _found.found
        monkeypatch.setattr(
            "dlx_share.sharing.found", lambda at, size: found(at, size, area)
        )
        files = open_files()
        with pytest.raises(dlx.CopyRefused, match="SYSV"):
            dlx.share(x, copy=False)
        assert open_files() == files


def test_a_file_exchanged_while_it_is_opened_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README.md, Security: what O_PATH has found stays what it is."""
    x = np.memmap(tmp_path / "numbers", "f8", "w+", shape=(4,))
    (tmp_path / "other").write_bytes(bytes(32))
    stat = os.stat

    def exchanged(path: Any, *arguments: Any, **keywords: Any) -> Any:
        found = stat(path, *arguments, **keywords)
        if path == str(tmp_path / "numbers"):
            (tmp_path / "other").rename(path)
            monkeypatch.undo()
        return found

    monkeypatch.setattr(os, "stat", exchanged)
    with pytest.raises(dlx.CopyRefused, match="no path or descriptor"):
        dlx.share(x, copy=False)


# `dlx.empty(shared=True)`.


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy", None])
def test_memory_made_to_be_shared_is_not_copied(library: str | None) -> None:
    """README.md, Sharing: whatever it is like."""
    like = None if library is None else requires(library)
    x = dlx.empty((3, 4), "float32", like=like, shared=True)
    assert dlx.from_dlpack(x).tolist() == np.zeros((3, 4)).tolist()
    with dlx.share(x, copy=False) as h:
        assert not h.is_copied
        there = dlx.attach(bytes(h))
    assert there.data_ptr == dlx.from_dlpack(x).data_ptr


def test_the_shape_of_memory_made_to_be_shared_is_read_once() -> None:
    """README.md, Sharing: what was checked is what is made."""
    reads = iter([(2, 3), (9,)])

    class Changing:
        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[int]:
            return iter(next(reads))

    Sequence.register(Changing)
    shape: Any = Changing()
    x = dlx.empty(shape, "float32", shared=True)
    assert x.shape == (2, 3)


@pytest.mark.parametrize("shape", [(), 3, (0, 2), (2, 0), (2, 3)])
@pytest.mark.parametrize(
    "dtype", ["bfloat16", "uint4", "float4_e2m1fnx2", "bool", "float32x3"]
)
def test_memory_made_to_be_shared_has_any_shape_and_dtype(
    shape: Any, dtype: str
) -> None:
    """README.md, Sharing: as `dlx.empty` has."""
    one, other = dlx.empty(shape, dtype), dlx.empty(shape, dtype, shared=True)
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert one.strides == other.strides
    with dlx.share(other, copy=False) as h:
        back = dlx.attach(bytes(h))
        assert (back.shape, back.dtype) == (other.shape, other.dtype)
        assert not h.is_copied


def test_three_floats_are_aligned_like_one() -> None:
    """README.md, Sharing: also where their address is no multiple of twelve."""
    x = dlx.empty((3, 4), "float32x3", shared=True)
    for row in range(3):
        for column in range(3):
            with dlx.share(x[row, column:], copy=False) as h:
                assert dlx.attach(h).data_ptr == x[row, column:].data_ptr
    whole = dlx.empty(16, "float32", shared=True).numpy()
    for first in range(3):
        y = dlx.from_buffer(whole[first:], (2,), "float32x3")
        assert not dlx.share(y, copy=False).is_copied


def test_a_mixin_class_gets_memory_made_to_be_shared() -> None:
    """README.md, Sharing: by `__dlx_import__`, not by `__dlx_empty__`."""

    class Signal(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: object) -> None:
            self.data = data

        @classmethod
        def __dlx_import__(cls, tensor: dlx.Tensor) -> Signal:
            return cls(tensor)

    for like in Signal, Signal(np.zeros(2)):
        x = dlx.empty(3, "int16", like=like, shared=True)
        assert type(x) is Signal
        assert not dlx.share(x, copy=False).is_copied


def test_memory_to_be_shared_is_of_the_host() -> None:
    """README.md, Sharing: no device."""
    x = dlx.from_pointer(4096, (2,), "float32", device="cuda:0")
    with pytest.raises(BufferError, match="cuda:0"):
        dlx.empty(3, "int8", shared=True, device="cuda:0")
    with pytest.raises(BufferError, match="cuda:0"):
        dlx.empty(3, "int8", shared=True, like=x)


@pytest.mark.parametrize("lost", range(6))
def test_a_mapping_is_found_while_others_come_and_go(lost: int) -> None:
    """README.md, Sharing: unmapped before and behind."""
    made = [dlx.empty(8192, "uint8", shared=True) for _ in range(7)]
    held: list[Any] = sorted(made, key=lambda x: x.data_ptr)
    made.clear()
    mine = held.pop(3)
    with dlx.share(mine) as h:
        inode = h._described.inode
    gone = held[lost].data_ptr
    held[lost] = None
    with dlx.share(mine[8:], copy=False) as h:
        assert (h._described.inode, h._described.offset) == (inode, 8)
    assert _found.area(gone) is None
    assert _mappings.covering(gone, 1) is None
    for each in (x for x in (mine, *held) if x is not None):
        found = _mappings.covering(each.data_ptr, 8192)
        assert found is not None
        assert found.address == each.data_ptr
        assert _mappings.covering(each.data_ptr + 1, 8192) is None


def test_memory_made_to_be_shared_is_given_back() -> None:
    """README.md, Sharing: mapping and descriptor, with the tensor."""
    files = open_files()
    x = dlx.empty(3, "int8", shared=True)
    assert open_files() == files + 1
    address = x.data_ptr
    del x
    assert open_files() == files
    assert _found.area(address) is None
