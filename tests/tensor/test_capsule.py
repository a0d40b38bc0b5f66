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
import numpy as np
import pytest
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_READ_ONLY,
    capsule_name,
    capsule_name_address,
    delete,
    managed_in,
    take,
)
from support.dlx_producers import (
    HOLDERS,
    ByMethod,
    Maker,
    Stored,
    every_holder,
    every_producer,
)
from support.fake_producers import Producer
from support.libc import raw_thread
from support.optional_libraries import requires

VERSIONED = {"max_version": (1, 3)}
LEGACY: dict[str, Any] = {}


class Floats:
    """0.0 to 5.0."""

    def __init__(self) -> None:
        """Allocate them."""
        self.values = (c_float * 6)(*range(6))


class Memory:
    """Makes tensors over floats that nobody else holds, and sees the last ones go."""

    def __init__(self) -> None:
        """Begin without any."""
        self._last: weakref.ref[Floats]

    def tensor(self, **keywords: Any) -> dlx.Tensor:
        """Describe new floats as 2 by 3."""
        owner = Floats()
        self._last = weakref.ref(owner)
        start = addressof(owner.values)
        return dlx.from_pointer(start, (2, 3), "float32", owner=owner, **keywords)

    @property
    def held(self) -> bool:
        """Whether somebody still holds the floats."""
        return self._last() is not None

    @property
    def owner(self) -> Floats:
        """The floats, which somebody still holds."""
        owner = self._last()
        assert owner is not None
        return owner


HELD: dict[str, Maker] = HOLDERS | {
    "stored array": lambda tensor: Stored(np.from_dlpack(tensor)),
    "array by method": lambda tensor: ByMethod(np.from_dlpack(tensor)),
    "stored tensor of torch": lambda tensor: Stored(
        requires("torch").from_dlpack(tensor)
    ),
}


@pytest.fixture
def memory() -> Memory:
    """Give what makes tensors and sees their memory go."""
    return Memory()


@pytest.fixture(params=list(HELD.values()), ids=list(HELD))
def make(request: pytest.FixtureRequest) -> Any:
    """Make an exporter of a tensor, in every way there is."""
    return request.param


@pytest.fixture(params=[VERSIONED, LEGACY], ids=["versioned", "legacy"])
def asked(request: pytest.FixtureRequest) -> Any:
    """Ask for a capsule of either kind."""
    return request.param


def fail() -> object:
    """Raise what a test catches."""
    raise KeyError("pending")


@pytest.mark.parametrize(
    ("asked", "name"), [(LEGACY, b"dltensor"), (VERSIONED, b"dltensor_versioned")]
)
def test_an_export_bears_the_name_of_its_kind(
    make: Maker, asked: dict[str, Any], name: bytes, memory: Memory
) -> None:
    """R1: `dltensor`, or `dltensor_versioned` if the consumer knows it."""
    assert capsule_name(make(memory.tensor()).__dlpack__(**asked)) == name


def test_the_name_of_an_export_is_the_same_string_every_time(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R2: static, so that it outlives capsule and exporter."""
    first, second = (make(memory.tensor()).__dlpack__(**asked) for _ in range(2))
    assert capsule_name_address(first) == capsule_name_address(second)


def test_dropping_an_unused_capsule_lets_go_of_the_memory(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R3: the destructor calls the deleter."""
    capsule = make(memory.tensor()).__dlpack__(**asked)
    assert memory.held
    del capsule
    assert not memory.held


def test_dropping_a_used_capsule_leaves_its_tensor_to_the_consumer(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R4: the destructor does nothing; the consumer calls the deleter."""
    capsule = make(memory.tensor()).__dlpack__(**asked)
    struct = take(capsule)
    del capsule
    assert memory.held
    delete(struct)
    assert not memory.held


def test_an_unused_capsule_that_goes_while_an_exception_is_pending_is_deleted(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R5: it is set while the interpreter drops the first half of a tuple."""
    with pytest.raises(KeyError, match="pending"):
        _ = (make(memory.tensor()).__dlpack__(**asked), fail())
    assert not memory.held


def test_a_used_capsule_that_goes_while_an_exception_is_pending_keeps_that_exception(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R5: it is set while the interpreter drops the first half of a tuple."""

    def used() -> Any:
        capsule = make(memory.tensor()).__dlpack__(**asked)
        dlx.from_dlpack(capsule)
        return capsule

    with pytest.raises(KeyError, match="pending"):
        _ = (used(), fail())


def test_the_struct_in_a_capsule_is_the_one_that_its_name_says(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R6: read as that struct, the fields are those of the tensor."""
    capsule = make(memory.tensor()).__dlpack__(**asked)
    tensor = managed_in(capsule).dl_tensor
    dtype = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    found = tensor.data, tensor.ndim, dtype, tensor.shape[:2], tensor.strides[:2]
    start = addressof(memory.owner.values)
    assert found == (start, 2, (2, 32, 1), [2, 3], [3, 1])


def test_the_deleter_runs_on_a_thread_that_python_does_not_know(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R13: without the GIL, and what it lets go of is a Python object."""
    struct = take(make(memory.tensor()).__dlpack__(**asked))
    join = raw_thread(struct.deleter, addressof(struct))
    join()
    assert not memory.held


AFTER_PYTHON = """
import ctypes, sys
sys.path.append("tensor")
from support.dlpack_abi import for_ever, take
from test_capsule import HELD, VERSIONED, Memory

def at_exit(function, argument):
    libc.__cxa_atexit(ctypes.cast(function, ctypes.c_void_p), argument, None)

libc = for_ever(ctypes.CDLL(None))
struct = for_ever(take(HELD[sys.argv[1]](Memory().tensor()).__dlpack__(**VERSIONED)))
at_exit(libc.puts, for_ever(ctypes.create_string_buffer(b"after")))
at_exit(struct.deleter, ctypes.c_void_p(ctypes.addressof(struct)))
at_exit(libc.puts, for_ever(ctypes.create_string_buffer(b"before")))
"""


@pytest.mark.parametrize("held", [name for name in HELD if "torch" not in name])
def test_the_deleter_is_harmless_when_there_is_no_interpreter_any_more(
    held: str,
) -> None:
    """R14: what the C library is to call runs after Python, last one first."""
    ran = subprocess.run(
        [sys.executable, "-c", AFTER_PYTHON, held],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "before\nafter\n", "")


def test_an_export_stays_readable_when_its_exporter_is_gone(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R15, R100: elements and shape."""
    capsule = make(memory.tensor()).__dlpack__(**asked)
    gc.collect()
    tensor = managed_in(capsule).dl_tensor
    floats = ctypes.cast(tensor.data, POINTER(c_float))[:6]
    assert (tensor.shape[:2], floats) == ([2, 3], [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_two_exports_do_not_share_a_managed_tensor(
    make: Maker, asked: dict[str, Any], first_to_go: int, memory: Memory
) -> None:
    """R16: one is deleted, the other stays whole."""
    tensor = make(memory.tensor())
    structs = [take(tensor.__dlpack__(**asked)) for _ in range(2)]
    del tensor
    delete(structs.pop(first_to_go))
    [other] = structs
    assert other.dl_tensor.shape[:2] == [2, 3]
    assert ctypes.cast(other.dl_tensor.data, POINTER(c_float))[5] == 5
    delete(other)


def test_an_export_that_comes_and_goes_changes_no_reference_count(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R17: of the tensor and of the owner of its memory."""
    tensor = make(memory.tensor())
    before = sys.getrefcount(tensor), sys.getrefcount(memory.owner)
    tensor.__dlpack__(**asked)
    assert (sys.getrefcount(tensor), sys.getrefcount(memory.owner)) == before


@every_holder
@pytest.mark.parametrize(
    "asked",
    [{}, {"dl_device": (2, 0)}, {"stream": 1}, {"stream": True}, {"copy": "yes"}],
    ids=repr,
)
def test_an_export_that_fails_holds_on_to_nothing(
    make: Maker, asked: dict[str, Any], memory: Memory
) -> None:
    """R21: read-only, so that even the plain legacy export is refused."""
    tensor = make(memory.tensor(readonly=True))
    with pytest.raises((BufferError, TypeError)):
        tensor.__dlpack__(**asked)
    del tensor
    assert not memory.held


@every_producer
@pytest.mark.parametrize("shape", [(2, 3), (0,)])
def test_a_copy_of_read_only_memory_goes_into_a_legacy_capsule(
    make: Maker, shape: tuple[int, ...]
) -> None:
    """R40, R47: the copy may be written."""
    producer = make(Producer(shape=shape, flags=DLPACK_FLAG_BITMASK_READ_ONLY))
    assert capsule_name(producer.__dlpack__(copy=True)) == b"dltensor"


@every_producer
@pytest.mark.parametrize("max_version", [None, (0, 8)])
def test_read_only_memory_does_not_go_into_a_legacy_capsule(
    make: Maker, max_version: tuple[int, int] | None
) -> None:
    """R40: it could not say so."""
    producer = make(Producer(flags=DLPACK_FLAG_BITMASK_READ_ONLY))
    with pytest.raises(BufferError, match="read-only"):
        producer.__dlpack__(max_version=max_version)


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
