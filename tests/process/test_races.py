"""Threads that want the same thing at the same moment.

On a free-threaded Python they run in parallel. Elsewhere they take turns, which finds
less.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from ctypes import byref
from typing import Any

import dlx
import numpy as np
import pytest
from support.arrow_structs import ArrowArray
from support.concurrent_threads import FREE_THREADED, THREADS, in_step, together
from support.dlpack_abi import (
    DLTensor,
    capsule_pointer,
    delete,
    from_table,
    table_of,
    take,
)
from support.dlx_producers import ByMethod, Stored
from support.fake_arrow import ByArray, count_releases
from support.fake_producers import Producer
from support.optional_libraries import requires

pytestmark = pytest.mark.slow

MANY = 2000 if FREE_THREADED else 200


def test_the_gil_stays_as_it_was_when_dlx_is_imported() -> None:
    """A module that does not say that it needs no GIL turns it on, with a warning."""
    code = """
import sys
is_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
before = is_enabled()
import dlx
print(before, is_enabled())
"""
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True)
    same = "False False\n" if FREE_THREADED else "True True\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, same, "")


def test_tensors_count_references_of_their_class_only_where_there_is_a_gil() -> None:
    """Threads that count the same object take turns, as with a GIL."""
    before = sys.getrefcount(dlx.Tensor)
    kept = [dlx.from_dlpack(np.ones(3)) for _ in range(1000)]
    counted = sys.getrefcount(dlx.Tensor) - before
    assert counted == (0 if FREE_THREADED else len(kept))


def consumed(x: Any) -> bool:
    """Whether `x` could be imported."""
    try:
        dlx.from_dlpack(x)
    except BufferError:
        return False
    return True


ONCE = {(True, False), (False, True)}
"""What two threads report of something that only one of them can do."""


@pytest.mark.parametrize("versioned", [True, False])
def test_of_two_threads_one_consumes_a_capsule(versioned: bool) -> None:
    """R10, R11: at the same moment; each deleter runs once."""
    producer = Producer()
    capsules = [producer.capsule(versioned=versioned) for _ in range(MANY)]
    assert set(in_step(consumed, capsules)) <= ONCE
    capsules.clear()
    assert [export.deleted for export in producer.exports] == [1] * MANY


def test_a_capsule_that_two_threads_cannot_consume_keeps_its_tensor() -> None:
    """R11: neither refusal deletes it, and the capsule does once."""
    producer = Producer(dtype=(2, 64, 0))
    capsules = [producer.capsule() for _ in range(MANY)]
    assert set(in_step(consumed, capsules)) == {(False, False)}
    assert producer.deleted == 0
    capsules.clear()
    assert [export.deleted for export in producer.exports] == [1] * MANY


def test_of_two_threads_one_takes_an_arrow_array() -> None:
    """R153: both were given the same capsules."""
    pa = requires("pyarrow")

    class Same(ByArray):
        """Gives the same capsules to everybody."""

        def __init__(self) -> None:
            """Make them."""
            super().__init__(pa.array([0.0, 1.0, 2.0]))
            self.capsules = super().__arrow_c_array__()
            address = capsule_pointer(self.capsules[1], self.NAME)
            self.released = count_releases(ArrowArray.from_address(address))

        def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
            """Give them."""
            return self.capsules

    arrays = [Same() for _ in range(MANY)]
    assert set(in_step(consumed, arrays)) <= ONCE
    assert [len(array.released) for array in arrays] == [1] * len(arrays)


EXPORTS: dict[str, Callable[[Any], Any]] = {
    "import": dlx.from_dlpack,
    "again": lambda x: dlx.from_dlpack(dlx.from_dlpack(x)),
    "NumPy": lambda x: np.from_dlpack(dlx.from_dlpack(x)),
    "buffer": lambda x: memoryview(dlx.from_dlpack(x)),
    "capsule": lambda x: dlx.from_dlpack(x).__dlpack__(max_version=(1, 3)),
    "old capsule": lambda x: dlx.from_dlpack(dlx.from_dlpack(x).__dlpack__()),
    "converted": lambda x: dlx.convert(x, np.ndarray),
    "mixin": lambda x: dlx.from_dlpack(Stored(x)),
    "mixin by method": lambda x: np.from_dlpack(ByMethod(x)),
    "deleted by C": lambda x: delete(take(dlx.from_dlpack(x).__dlpack__())),
    "table": lambda x: delete(from_table(table_of(dlx.Tensor), dlx.from_dlpack(x))),
    "mixin's table": lambda x: delete(from_table(table_of(Stored), Stored(x))),
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_one_array_shared_by_threads_is_held_as_often_as_it_is_used(
    export: Callable[[Any], Any],
) -> None:
    """R16, R145: counts that threads lose or count twice would show at the end."""
    shared = [np.arange(3.0)]
    memory = weakref.ref(shared[0])
    before = sys.getrefcount(shared[0])

    def work(index: int) -> int:
        kept = [export(shared[0]) for _ in range(MANY // 4)]
        half = len(kept[::2])
        del kept[::2]
        return half + len(kept)

    assert together(work) == [MANY // 4] * THREADS
    gc.collect()
    after = sys.getrefcount(shared[0])
    assert after == before
    shared.clear()
    gc.collect()
    assert memory() is None


HOLDS: dict[str, Callable[[dlx.Tensor], Any]] = {
    "capsule": lambda tensor: tensor.__dlpack__(max_version=(1, 3)),
    "old capsule": lambda tensor: tensor.__dlpack__(),
    "import": lambda tensor: dlx.from_dlpack(tensor.__dlpack__()),
    "buffer": memoryview,
    "deleted by C": lambda tensor: delete(take(tensor.__dlpack__())),
}


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_one_tensor_shared_by_threads_lets_go_once(
    hold: Callable[[dlx.Tensor], Any],
) -> None:
    """R8, R16, R145: with as many exports as it takes for the threads to meet."""
    producer = Producer()
    tensors = [dlx.from_dlpack(producer)]

    def work(index: int) -> None:
        for _ in range(10 * MANY):
            hold(tensors[0])

    together(work)
    assert producer.deleted == 0
    tensors.clear()
    gc.collect()
    assert producer.deleted == 1


def test_tensors_made_by_one_thread_die_in_others() -> None:
    """R13, R145: by two at the same moment."""
    producer = Producer()
    tensors = [dlx.from_dlpack(producer) for _ in range(MANY)]
    pairs = [[tensor, tensor.__dlpack__()] for tensor in tensors]
    tensors.clear()
    in_step(list.pop, pairs)
    gc.collect()
    assert [export.deleted for export in producer.exports] == [1] * MANY


def test_threads_without_the_gil_let_go_of_one_tensor() -> None:
    """R13, R16: ctypes releases it around deleters; the last one frees the memory."""
    producer = Producer()
    tensors = [dlx.from_dlpack(producer) for _ in range(2 * MANY)]
    exports = [[take(t.__dlpack__()) for t in tensors] for _ in range(THREADS)]
    tensors.clear()

    def work(index: int) -> None:
        for export in exports[index]:
            delete(export)

    together(work)
    assert [export.deleted for export in producer.exports] == [1] * 2 * MANY


def test_views_that_threads_ask_for_lie_over_the_same_numbers() -> None:
    """R129: strides in elements are kept for all arrays that have the same."""
    table = table_of(Stored)
    whole = np.arange(64 * 64.0).reshape(64, 64)

    def work(index: int) -> int:
        right = 0
        for step in range(1, 33):
            for part in whole[::step], whole[:, ::step], whole[::step, ::step].T:
                lent, stored = DLTensor(), Stored(part)
                table.dltensor_from_py_object_no_sync(stored, byref(lent))
                strides = [stride // 8 for stride in part.strides]
                right += lent.strides[:2] == strides and lent.data == part.ctypes.data
        return right

    assert together(work) == [32 * 3] * THREADS


def test_a_block_is_entered_by_one_thread() -> None:
    """H1: the other is told, and no view outlives its block."""
    array = np.arange(3.0)
    blocks = [dlx.borrow(array) for _ in range(MANY)]
    views: list[Any] = []

    def entered(block: Any) -> bool:
        try:
            views.append(block.__enter__()[0])
        except RuntimeError:
            return False
        return True

    def left(block: Any) -> bool:
        try:
            block.__exit__(None, None, None)
        except RuntimeError:
            return False
        return True

    assert set(in_step(entered, blocks)) <= ONCE
    assert set(in_step(left, blocks)) <= ONCE
    assert len(views) == len(blocks)
    assert not any(map(consumed, views))
