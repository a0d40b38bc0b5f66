"""`dlx.attach(mode=)`: who may write, proved by writing."""

from __future__ import annotations

import os
import signal
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_share.sharing import Handle
from hypothesis import given
from hypothesis import strategies as st
from support.optional_libraries import requires
from support.python_process import run_python
from support.random_layouts import offsets, tensors, values
from support.shared_memory import ARRAY, ask, child, exporter, mappings, told


def writable() -> Any:
    return dlx.share(ARRAY)


def promised() -> Any:
    """Read-only because the tensor is."""
    x = dlx.empty(ARRAY.shape, "float64", shared=True, like=np)
    x[:] = ARRAY
    x.flags.writeable = False
    return dlx.share(x, copy=False)


def sealed() -> Any:
    """Read-only by the kernel, but not for who has it mapped."""
    x = dlx.empty(ARRAY.shape, "float64", shared=True, like=np)
    x[:] = ARRAY
    return dlx.share(x, copy=False, readonly=True)


def frozen() -> Any:
    return dlx.share(ARRAY, readonly=True)


HANDLES = [writable, promised, sealed, frozen]
READ_ONLY = HANDLES[1:]


@given(tensors(), st.sampled_from([None, "r", "rw", "cow"]), st.booleans())
def test_every_tensor_is_attached_in_every_mode(
    t: dlx.Tensor, mode: Any, readonly: bool
) -> None:
    """README.md, Sharing: or refused, for writing."""
    with dlx.share(t, readonly=readonly) as h:
        if mode == "rw" and h.readonly:
            with pytest.raises(BufferError, match="read-only"):
                dlx.attach(h, mode=mode)
            return
        back = dlx.attach(bytes(h), mode=mode)
    assert (back.shape, back.dtype, back.is_padded) == (t.shape, t.dtype, t.is_padded)
    assert values(back) == values(t)
    if mode is not None:
        assert back.readonly == (mode == "r")
    else:
        assert back.readonly == h.readonly


@pytest.mark.parametrize("share", HANDLES)
def test_by_default_the_memory_is_writable_unless_the_handle_is(share: Any) -> None:
    """README.md, Sharing: mode None."""
    with share() as h:
        t = dlx.attach(h)
        assert h.readonly == t.readonly == (share is not writable)
        if h.readonly:
            with pytest.raises(ValueError, match="read-only"):
                np.from_dlpack(t)[0, 0] = 7
        else:
            np.from_dlpack(t)[0, 0] = 7
            assert dlx.attach(bytes(h)).tolist()[0][0] == 7


@pytest.mark.parametrize("share", READ_ONLY)
def test_a_read_only_handle_is_not_attached_for_writing(share: Any) -> None:
    """README.md, Sharing: mode "rw"."""
    with share() as h, pytest.raises(BufferError, match=r"mode='rw'.* read-only"):
        dlx.attach(h, mode="rw")


@pytest.mark.parametrize("share", HANDLES)
def test_private_writes_stay_private(share: Any) -> None:
    """README.md, Sharing: mode "cow", and what is made of it."""
    torch = requires("torch")
    with share() as h:
        before = mappings()
        for like in np, torch:
            x = dlx.attach(h, mode="cow", like=like)
            assert mappings() == before + 1
            x[0, 0] = 7
            assert dlx.attach(h).tolist() == ARRAY.tolist()
            with dlx.share(x) as again:
                assert again.is_copied
                assert dlx.attach(again).tolist()[0][0] == 7
            with pytest.raises(dlx.CopyRefused, match="may hold changed pages"):
                dlx.share(x, copy=False)
            del x
            assert mappings() == before


def test_a_private_mapping_shows_what_the_owner_writes() -> None:
    """README.md, Sharing: mode "cow" of memory that is not frozen."""
    with dlx.share(ARRAY) as h:
        x = dlx.attach(h, mode="cow", like=np)
        dlx.attach(h, like=np)[0, 0] = 7
        assert x[0, 0] == 7


@pytest.mark.parametrize("kind", ["writable", "sealed", "frozen"])
def test_writing_to_a_read_only_mapping_ends_the_process(kind: str) -> None:
    """README.md, Sharing: mode "r" is the kernel's, whatever a library does."""
    code = f"""
import ctypes, dlx, numpy as np
x = dlx.empty(4096, "uint8", shared=True)
h = dlx.share(x, readonly={kind != "writable"}, copy={kind == "frozen"})
t = dlx.attach(h, mode="r")
assert t.tolist() == [0] * 4096
ctypes.memset(t.data_ptr, 7, 1)
"""
    assert run_python(code)[0] == -signal.SIGSEGV


@pytest.mark.parametrize("readonly", [False, True])
def test_mode_r_gives_torch_no_memory(readonly: bool) -> None:
    """README.md, Sharing: torch has no read-only tensors."""
    torch = requires("torch")
    with dlx.share(ARRAY, readonly=readonly) as h:
        with pytest.raises(dlx.CopyRefused, match="pass mode='cow', or no mode"):
            dlx.attach(h, like=torch, mode="r")
        assert not dlx.attach(h, like=np, mode="r").flags.writeable


def test_torch_gets_frozen_memory_without_a_copy() -> None:
    """README.md, Sharing: a private mapping, whose writes stay private."""
    torch = requires("torch")
    with frozen() as h:
        before = mappings()
        x = dlx.attach(h, like=torch)
        assert mappings() == before + 1
        x[0, 0] = 7
        assert dlx.attach(h).tolist() == ARRAY.tolist()


def repeating(array: Any, strides: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """A writable view whose strides count elements."""
    steps = [stride * array.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(array, shape, steps)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-5, 5)), max_size=3))
def test_elements_that_may_repeat_are_found(layout: list[tuple[int, int]]) -> None:
    """README.md, Sharing: all that do; and no others, where there are no gaps."""
    shape, strides = (tuple(n for n, _ in layout), tuple(n for _, n in layout))
    places = offsets(shape, strides)
    repeat, reached = len(set(places)) < len(places), max(places) - min(places) + 1
    may = dlx.pickling._may_repeat(shape, strides)
    assert may >= repeat
    if len(set(places)) == reached:
        assert may == repeat


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("strides", [(0, 1), (1, 1)])
def test_repeated_elements_are_shared_for_reading(
    copy: bool, strides: tuple[int, int]
) -> None:
    """README.md, Sharing: whoever wrote to one would write to others."""
    torch = requires("torch")
    x = dlx.empty(6, "float64", shared=True, like=np)
    x[:] = range(6)
    view = repeating(x, strides, (2, 3))
    assert not dlx.from_dlpack(view).readonly
    with dlx.share(view, copy=copy) as h:
        assert (h.is_copied, h.readonly) == (copy, True)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(h._file, b"a", 0)
        t = dlx.attach(bytes(h))
        assert (t.readonly, t.tolist()) == (True, view.tolist())
        dlx.attach(h, like=torch)[0, 0] = 7
        assert t.tolist() == view.tolist()


@pytest.mark.parametrize("share", [promised, sealed])
def test_torch_gets_a_copy_of_memory_that_can_change(share: Any) -> None:
    """README.md, Sharing: read-only, but not frozen."""
    torch = requires("torch")
    with share() as h:
        x = dlx.attach(h, like=torch)
        assert x.data_ptr() != dlx.attach(h).data_ptr
        x[0, 0] = 7
        assert dlx.attach(h).tolist() == ARRAY.tolist()


def test_jax_gets_frozen_memory_without_a_copy() -> None:
    """README.md, Sharing: it may be read as long as the array lives."""
    jax = requires("jax")
    with dlx.share(ARRAY.astype("f4"), readonly=True) as h:
        before = mappings()
        x = dlx.attach(h, like=jax)
        assert mappings() == before + 1
        assert x.tolist() == ARRAY.tolist()


TRY = """
import mmap
h = pickle.load(into)
path = f"/proc/self/fd/{h._file}"
results = []
for attempt in (
    lambda: mmap.mmap(os.open(path, os.O_RDWR), 48),
    lambda: os.pwrite(os.open(path, os.O_RDWR), b"a", 0),
    lambda: os.ftruncate(os.open(path, os.O_RDWR), 0),
    lambda: os.pwrite(h._file, b"a", 0),
    lambda: dlx.attach(h, mode="rw"),
):
    try:
        attempt()
    except Exception as error:
        results.append(type(error).__name__)
    else:
        results.append("written")
tell(results)
"""


@pytest.mark.parametrize("share", [sealed, frozen])
def test_the_kernel_refuses_every_way_to_write(share: Any) -> None:
    """README.md, Security: to another process that tries."""
    with share() as h, child(TRY) as process:
        denied = "PermissionError"
        assert ask(process, h) == [denied, denied, denied, "OSError", "BufferError"]
        assert dlx.attach(h).tolist() == ARRAY.tolist()


def test_the_owner_of_sealed_memory_writes_on() -> None:
    """README.md, Sharing: readonly=True without a copy."""
    x = dlx.empty(3, "float64", shared=True, like=np)
    with (
        dlx.share(x, copy=False, readonly=True) as h,
        child(
            "t = dlx.attach(pickle.load(into))\n"
            "tell()\ninto.readline()\ntell(t.tolist())"
        ) as p,
    ):
        ask(p, h)
        x[1] = 7
        assert ask(p) == [0, 7, 0]
        assert not h.is_copied
        with dlx.share(x, copy=False, readonly=True) as again:
            assert again.readonly


def test_memory_that_is_sealed_later_is_attached_for_reading_only() -> None:
    """README.md, Sharing: an older handle of it is told."""
    code = """
x = dlx.empty(3, "float64", shared=True)
h = dlx.share(x)
dlx.share(x, readonly=True, copy=False)
tell(bytes(h))
into.read()
"""
    with child(code) as process:
        data = told(process)
        with pytest.raises(BufferError, match="not permitted"):
            dlx.attach(data)
        assert dlx.attach(data, mode="r").tolist() == [0, 0, 0]


def test_what_is_sealed_is_shared_again_for_reading_only() -> None:
    """README.md, Sharing: no others can map it to write."""
    x = dlx.empty(3, "float64", shared=True, like=np)
    dlx.share(x, copy=False, readonly=True).close()
    x[1] = 7
    with (
        dlx.share(x, copy=False) as h,
        child("t = dlx.attach(pickle.load(into))\ntell(t.tolist())") as process,
    ):
        assert h.readonly
        assert ask(process, h) == [0, 7, 0]


def test_memory_that_no_seal_protects_is_copied_to_be_read_only(
    tmp_path: Any,
) -> None:
    """README.md, Sharing: readonly=True of a file."""
    x = np.memmap(tmp_path / "file", "f8", "w+", shape=(4,))
    with dlx.share(x, readonly=True) as h:
        assert h.is_copied
        assert h.readonly
    with pytest.raises(dlx.CopyRefused, match="let others write to"):
        dlx.share(x, readonly=True, copy=False)


def test_frozen_memory_stays_frozen_when_it_is_shared_again() -> None:
    """README.md, Sharing: torch needs no copy of a part."""
    torch = requires("torch")
    with exporter(readonly=True) as (_, data), Handle(data) as h:
        part = dlx.attach(h)[1]
        for readonly in False, True:
            with dlx.share(part, copy=False, readonly=readonly) as again:
                before = mappings()
                x = dlx.attach(again, like=torch)
                assert mappings() == before + 1
                assert x.tolist() == ARRAY[1].tolist()
                del x


@pytest.mark.parametrize("share", HANDLES)
def test_in_its_own_process_a_handle_gives_the_memory_itself(share: Any) -> None:
    """README.md, Sharing: by address; by handle, bytes and pickle."""
    with share() as h:
        t = dlx.attach(h)
        assert dlx.attach(h).data_ptr == t.data_ptr
        assert dlx.attach(bytes(h)).data_ptr == t.data_ptr
        with dlx.share(t, copy=False) as again:
            assert dlx.attach(again).data_ptr == t.data_ptr
        with dlx.share(t[1, ::-1], copy=False) as part:
            assert not part.is_copied
            assert dlx.attach(part).tolist() == ARRAY[1, ::-1].tolist()
            assert dlx.attach(part).data_ptr == t[1, ::-1].data_ptr


def test_a_mapping_for_reading_is_not_that_of_the_writer() -> None:
    """README.md, Sharing: mode "r" in the exporting process."""
    with dlx.share(ARRAY) as h:
        one, other = dlx.attach(h), dlx.attach(h, mode="r")
        assert one.data_ptr != other.data_ptr
        np.from_dlpack(one)[0, 0] = 7
        assert other.tolist()[0][0] == 7


def test_an_unknown_mode_is_a_value_error() -> None:
    """README.md, Sharing."""
    with dlx.share(ARRAY) as h, pytest.raises(ValueError, match="mode is 'w'"):
        dlx.attach(h, mode="w")


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
@pytest.mark.parametrize("copy", [None, False, True])
def test_tensors_without_elements_are_shared(shape: Any, copy: Any) -> None:
    """README.md, Sharing: nothing is copied of nothing."""
    x = dlx.empty(shape, "float32", shared=True, like=np)
    x[...] = 7
    for y in x, np.full(shape, 7, "f4"):
        if copy is False and shape == () and y is not x:
            continue
        with dlx.share(y, copy=copy) as h:
            assert dlx.attach(bytes(h)).tolist() == x.tolist()
            assert h.is_copied <= bool(x.size)
            for mode in "r", "cow":
                assert dlx.attach(h, mode=mode).shape == shape


def test_a_large_sparse_file_is_mapped_in_part(tmp_path: Any) -> None:
    """README.md, Sharing: mode "cow" counts as memory only what it holds."""
    size = 1 << 42
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, size)
    x = np.memmap(path, "u1", "r+", offset=size - 8192, shape=(4096,))
    with dlx.share(x, copy=False) as h:
        back = dlx.attach(bytes(h), paths=True, mode="cow", like=np)
        back[0] = 7
        assert x[0] == 0
        shared = dlx.attach(bytes(h), paths=True, like=np)
        x[0] = 3
        assert shared[0] == 3
        assert back[0] == 7


def test_elsewhere_the_call_says_that_it_takes_linux() -> None:
    """README.md, Sharing: an error at the call, not at the import of dlx."""
    code = """
import sys
sys.platform = "darwin"
import dlx, numpy as np
for call in (
    lambda: dlx.share(np.zeros(2)), lambda: dlx.attach(b""),
    lambda: dlx.empty(2, "int8", shared=True),
):
    try:
        call()
    except ImportError as error:
        assert "on Linux only" in str(error), error
    else:
        raise AssertionError
"""
    assert run_python(code) == (0, "", "")


def test_importing_dlx_loads_nothing_to_share() -> None:
    """README.md, Sharing: nor does what does not share."""
    code = """
import sys, dlx
dlx.empty(3, "int8")
loaded = {"dlx_share.sharing", "dlx.pickling", "mmap", "socket", "ctypes", "fcntl"}
assert not loaded & set(sys.modules), loaded & set(sys.modules)
"""
    assert run_python(code) == (0, "", "")
