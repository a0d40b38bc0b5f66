"""Python buffers that dlx takes: what is asked of them, and who holds them."""

from __future__ import annotations

import gc
import mmap
import struct
import sys
import weakref
from collections.abc import Callable
from ctypes import addressof
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.fake_buffer import Exporter
from support.python_process import run_python


def released() -> memoryview:
    """Release a view."""
    view = memoryview(b"abc")
    view.release()
    return view


def closed() -> mmap.mmap:
    """Close a map."""
    pages = mmap.mmap(-1, 64)
    pages.close()
    return pages


@pytest.mark.parametrize(
    ("make", "message"), [(released, "released memoryview"), (closed, "mmap closed")]
)
def test_the_exception_of_an_exporter_passes(
    make: Callable[[], Any], message: str
) -> None:
    """R60: a ValueError of a closed or released exporter."""
    with pytest.raises(ValueError, match=message) as caught:
        dlx.from_dlpack(make())
    assert type(caught.value) is ValueError


class Both(bytearray):
    """A buffer that knows DLPack."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export something else."""
        return np.arange(3.0).__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Give the CPU."""
        return 1, 0


def test_dlpack_comes_first() -> None:
    """docs/design.md, The way in: rungs 4 and 5."""
    assert dlx.from_dlpack(Both(5)).dtype == "float64"


def test_half_of_dlpack_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """R61: an object with `__dlpack__` alone is not read as a buffer."""
    monkeypatch.delattr(Both, "__dlpack_device__")
    with pytest.raises(AttributeError, match="Both has no __dlpack_device__;"):
        dlx.from_dlpack(Both(5))


@pytest.mark.parametrize("nothing", [object(), iter([]), slice(1)])
def test_an_object_without_any_protocol_is_told_what_there_is(nothing: Any) -> None:
    """R61: the AttributeError lists the protocols."""
    with pytest.raises(AttributeError, match=r"has no __dlpack__; .*Python buffers"):
        dlx.from_dlpack(nothing)


# What was asked for


def test_a_copy_is_a_copy_and_lets_go_of_the_buffer() -> None:
    """R47, R59: it keeps its values when the source changes."""
    source = Exporter()
    tensor = dlx.from_dlpack(source, copy=True)
    assert (tensor.is_copied, tensor.readonly, source.released) == (True, False, 1)
    source.memory[0] = 7
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_copy_of_what_is_read_only_may_be_written() -> None:
    """R59: and leaves the source as it is."""
    tensor = dlx.from_dlpack(b"abc", copy=True)
    np.from_dlpack(tensor)[0] = 0
    assert bytes(tensor) == b"\0bc"


@pytest.mark.parametrize(
    "asked", [{"copy": False}, {"device": "cpu"}, {"stream": None}, {"stream": -1}]
)
def test_what_holds_already_may_be_asked_for(asked: dict[str, Any]) -> None:
    """R49, R56, R71: `device="cpu"`, `copy=False`, no stream."""
    source = Exporter()
    address = addressof(source.memory)
    assert dlx.from_dlpack(source, **asked).data_ptr == address


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"device": "cuda:0"}, BufferError, "is on cpu"),
        ({"device": "cuda:0", "copy": True}, BufferError, "is on cpu"),
        ({"device": "cuda:0", "copy": False}, dlx.CopyRefused, "is on cpu"),
        ({"stream": 1}, BufferError, "cpu has no streams"),
        ({"stream": "1"}, TypeError, "stream must be an int"),
    ],
)
def test_what_cannot_be_had_is_refused(
    asked: dict[str, Any], error: type[Exception], message: str
) -> None:
    """R57, R58, R70, R78: and the buffer is released."""
    source = Exporter()
    with pytest.raises(error, match=message) as caught:
        dlx.from_dlpack(source, **asked)
    assert type(caught.value) is error
    assert source.exported == source.released


# Lifetime

HOLDERS: dict[str, Callable[[Any], Any]] = {
    "an import": dlx.from_dlpack,
    "a capsule": lambda x: dlx.from_dlpack(x).__dlpack__(max_version=(1, 3)),
    "an array": lambda x: np.from_dlpack(dlx.from_dlpack(x)),
    "a view": lambda x: memoryview(dlx.from_dlpack(x)),
    "an import of an export": lambda x: dlx.from_dlpack(
        dlx.from_dlpack(x).__dlpack__()
    ),
}
holders = pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)


@holders
def test_a_bytearray_keeps_its_size_as_long_as_somebody_holds_it(
    hold: Callable[[Any], Any],
) -> None:
    """R15, docs/safety.md S10: CPython refuses, so that nobody's memory moves."""
    source = bytearray(8)
    held = hold(source)
    with pytest.raises(BufferError, match="cannot be re-sized"):
        source.append(1)
    del held
    source.append(1)


@holders
def test_a_memoryview_stays_as_long_as_somebody_holds_it(
    hold: Callable[[Any], Any],
) -> None:
    """R15, S10: CPython refuses to release it."""
    source = memoryview(bytearray(8))
    held = hold(source)
    with pytest.raises(BufferError, match="export"):
        source.release()
    del held
    source.release()


@holders
def test_a_buffer_is_released_once(hold: Callable[[Any], Any]) -> None:
    """R8: when the last holder dies, and no reference is left."""
    source = Exporter()
    before = sys.getrefcount(source)
    held = hold(source)
    assert (source.exported, source.released) == (1, 0)
    del held
    assert (source.exported, source.released) == (1, 1)
    assert sys.getrefcount(source) == before


def test_the_memory_outlives_the_names_of_its_exporter() -> None:
    """R15: the tensor holds the exporter."""
    source = Exporter()
    alive = weakref.ref(source)
    tensor = dlx.from_dlpack(source)
    del source
    gc.collect()
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    del tensor
    assert alive() is None


def test_a_buffer_is_released_on_the_thread_that_lets_go_last() -> None:
    """R13: which is another one than that of the import."""
    source = Exporter()
    held = [dlx.from_dlpack(source)]
    in_thread(held.clear)
    assert source.released == 1


def test_a_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    """R39, R49: and cannot be closed while it is held."""
    file = tmp_path / "numbers"
    file.write_bytes(struct.pack("4d", 1, 2, 3, 4))
    with file.open("rb") as opened:
        pages = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    tensor = dlx.from_dlpack(memoryview(pages).cast("d", (2, 2)))
    assert tensor.readonly
    assert tensor.numpy().tolist() == [[1, 2], [3, 4]]
    with pytest.raises(BufferError, match="exported pointers"):
        pages.close()
    del tensor
    pages.close()


def test_a_cycle_through_a_memoryview_does_not_end_the_process() -> None:
    """docs/safety.md, S10: the collector would clear it while its memory is held."""
    code, _, errors = run_python(
        """
        import gc
        import dlx

        class Holder: pass

        view = memoryview(bytearray(32))
        holder = Holder()
        holder.itself, holder.tensor = holder, dlx.from_dlpack(view)
        del holder, view
        gc.collect()
        """
    )
    assert (code, errors) == (0, "")
