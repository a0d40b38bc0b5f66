"""Capsules that dlx gives away: their names, and who owns what is in them."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref
from ctypes import POINTER, addressof, c_float
from pathlib import Path
from typing import Any

import dlx
import pytest
from dlpack_abi import (
    DLPACK_FLAG_BITMASK_READ_ONLY,
    capsule_name,
    capsule_name_address,
    delete,
    managed_in,
    take,
)
from fake_producers import Producer
from libc import raw_thread

VERSIONED = {"max_version": (1, 3)}
LEGACY: dict[str, Any] = {}

either_kind = pytest.mark.parametrize("asked", [VERSIONED, LEGACY])


class Memory:
    """Six floats; a weak reference tells when nobody needs them any more."""

    def __init__(self) -> None:
        """0.0 to 5.0."""
        self.floats = (c_float * 6)(*range(6))

    def tensor(self, **keywords: Any) -> dlx.Tensor:
        """Describe the floats as 2 by 3."""
        start = addressof(self.floats)
        return dlx.from_pointer(start, (2, 3), "float32", owner=self, **keywords)


def fail() -> object:
    """Raise what a test catches."""
    raise KeyError("pending")


@pytest.mark.parametrize(
    ("asked", "name"), [(LEGACY, b"dltensor"), (VERSIONED, b"dltensor_versioned")]
)
def test_an_export_bears_the_name_of_its_kind(
    asked: dict[str, Any], name: bytes
) -> None:
    """R1."""
    assert capsule_name(Memory().tensor().__dlpack__(**asked)) == name


@either_kind
def test_the_name_of_an_export_is_the_same_string_every_time(
    asked: dict[str, Any],
) -> None:
    """R2: static, so that it outlives capsule and exporter."""
    first, second = (Memory().tensor().__dlpack__(**asked) for _ in range(2))
    assert capsule_name_address(first) == capsule_name_address(second)


@either_kind
def test_dropping_an_unused_capsule_lets_go_of_the_memory(
    asked: dict[str, Any],
) -> None:
    """R3."""
    memory = Memory()
    gone = weakref.ref(memory)
    capsule = memory.tensor().__dlpack__(**asked)
    del memory
    assert gone() is not None
    del capsule
    assert gone() is None


@either_kind
def test_dropping_a_used_capsule_leaves_its_tensor_to_the_consumer(
    asked: dict[str, Any],
) -> None:
    """R4."""
    memory = Memory()
    gone = weakref.ref(memory)
    capsule = memory.tensor().__dlpack__(**asked)
    struct = take(capsule)
    del memory, capsule
    assert gone() is not None
    delete(struct)
    assert gone() is None


@either_kind
def test_an_unused_capsule_that_goes_while_an_exception_is_pending_is_deleted(
    asked: dict[str, Any],
) -> None:
    """R5: it is set while the interpreter drops the first half of a tuple."""
    memory = Memory()
    gone = weakref.ref(memory)
    with pytest.raises(KeyError, match="pending"):
        _ = (memory.tensor().__dlpack__(**asked), fail())
    del memory
    assert gone() is None


@either_kind
def test_a_used_capsule_that_goes_while_an_exception_is_pending_keeps_that_exception(
    asked: dict[str, Any],
) -> None:
    """R5."""

    def used() -> Any:
        capsule = Memory().tensor().__dlpack__(**asked)
        dlx.from_dlpack(capsule)
        return capsule

    with pytest.raises(KeyError, match="pending"):
        _ = (used(), fail())


@either_kind
def test_the_struct_in_a_capsule_is_the_one_that_its_name_says(
    asked: dict[str, Any],
) -> None:
    """R6."""
    memory = Memory()
    capsule = memory.tensor().__dlpack__(**asked)
    tensor = managed_in(capsule).dl_tensor
    dtype = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    found = tensor.data, tensor.ndim, dtype, tensor.shape[:2], tensor.strides[:2]
    assert found == (addressof(memory.floats), 2, (2, 32, 1), [2, 3], [3, 1])


@either_kind
def test_the_deleter_runs_on_a_thread_that_python_does_not_know(
    asked: dict[str, Any],
) -> None:
    """R13: without the GIL, and what it lets go of is a Python object."""
    memory = Memory()
    gone = weakref.ref(memory)
    struct = take(memory.tensor().__dlpack__(**asked))
    del memory
    join = raw_thread(struct.deleter, addressof(struct))
    join()
    assert gone() is None


AFTER_PYTHON = """
import ctypes
from dlpack_abi import for_ever, take
from test_capsule import VERSIONED, Memory

def at_exit(function, argument):
    libc.__cxa_atexit(ctypes.cast(function, ctypes.c_void_p), argument, None)

libc = for_ever(ctypes.CDLL(None))
struct = for_ever(take(Memory().tensor().__dlpack__(**VERSIONED)))
at_exit(libc.puts, for_ever(ctypes.create_string_buffer(b"after")))
at_exit(struct.deleter, ctypes.c_void_p(ctypes.addressof(struct)))
at_exit(libc.puts, for_ever(ctypes.create_string_buffer(b"before")))
"""


def test_the_deleter_is_harmless_when_there_is_no_interpreter_any_more() -> None:
    """R14: what the C library is to call runs after Python, last one first."""
    ran = subprocess.run(
        [sys.executable, "-c", AFTER_PYTHON],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "before\nafter\n", "")


@either_kind
def test_an_export_stays_readable_when_its_exporter_is_gone(
    asked: dict[str, Any],
) -> None:
    """R15, R100: elements and shape."""
    capsule = Memory().tensor().__dlpack__(**asked)
    gc.collect()
    tensor = managed_in(capsule).dl_tensor
    floats = ctypes.cast(tensor.data, POINTER(c_float))[:6]
    assert (tensor.shape[:2], floats) == ([2, 3], [0, 1, 2, 3, 4, 5])


@either_kind
@pytest.mark.parametrize("first_to_go", [0, 1])
def test_two_exports_do_not_share_a_managed_tensor(
    asked: dict[str, Any], first_to_go: int
) -> None:
    """R16: one is deleted, the other stays whole."""
    tensor = Memory().tensor()
    structs = [take(tensor.__dlpack__(**asked)) for _ in range(2)]
    del tensor
    delete(structs.pop(first_to_go))
    [other] = structs
    assert other.dl_tensor.shape[:2] == [2, 3]
    assert ctypes.cast(other.dl_tensor.data, POINTER(c_float))[5] == 5
    delete(other)


@either_kind
def test_an_export_that_comes_and_goes_changes_no_reference_count(
    asked: dict[str, Any],
) -> None:
    """R17: of the tensor and of the owner of its memory."""
    memory = Memory()
    tensor = memory.tensor()
    before = sys.getrefcount(tensor), sys.getrefcount(memory)
    tensor.__dlpack__(**asked)
    assert (sys.getrefcount(tensor), sys.getrefcount(memory)) == before


@pytest.mark.parametrize(
    "asked",
    [{}, {"dl_device": (2, 0)}, {"stream": 1}, {"stream": True}, {"copy": "yes"}],
    ids=repr,
)
def test_an_export_that_fails_holds_on_to_nothing(asked: dict[str, Any]) -> None:
    """R21: read-only, so that even the plain legacy export is refused."""
    memory = Memory()
    gone = weakref.ref(memory)
    tensor = memory.tensor(readonly=True)
    with pytest.raises((BufferError, TypeError)):
        tensor.__dlpack__(**asked)
    del memory, tensor
    assert gone() is None


@pytest.mark.parametrize("shape", [(2, 3), (0,)])
def test_a_copy_of_read_only_memory_goes_into_a_legacy_capsule(
    shape: tuple[int, ...],
) -> None:
    """R40, R47: the copy may be written."""
    tensor = dlx.from_dlpack(Producer(shape=shape, flags=DLPACK_FLAG_BITMASK_READ_ONLY))
    assert capsule_name(tensor.__dlpack__(copy=True)) == b"dltensor"


@pytest.mark.parametrize("dtype", [(2, 32, 1), (4, 16, 1), (10, 8, 1)])
def test_an_array_of_numpy_holds_the_memory(dtype: tuple[int, int, int]) -> None:
    """R15, R8: also one of ml_dtypes, which is a view of another dtype."""
    producer = Producer(dtype=dtype)
    array = dlx.from_dlpack(producer).numpy()
    assert producer.deleted == 0
    del array
    assert producer.deleted == 1


@pytest.mark.parametrize("keywords", [{}, {"max_version": (1, 3)}])
def test_an_export_has_a_context(keywords: dict[str, Any]) -> None:
    """R8: Paddle calls no deleter without one, and would never give the memory back."""
    capsule = dlx.from_pointer(8, (1,), "int8").__dlpack__(**keywords)
    assert managed_in(capsule).manager_ctx is not None
