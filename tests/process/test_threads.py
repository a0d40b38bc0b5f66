"""Many threads at once: imports, exports, first meetings with a type, deleters."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from ctypes import addressof, byref, c_int64, c_void_p
from functools import partial
from textwrap import dedent
from typing import Any

import dlx
import numpy as np
import pytest
import tvm_ffi
from support.concurrent_threads import THREADS, together
from support.dlpack_abi import (
    DLManagedTensorVersioned,
    DLTensor,
    delete,
    from_table,
    table_of,
    take,
)
from support.fake_producers import OldProducer, Producer
from support.fake_table import table_class
from support.libc import raw_thread
from support.optional_libraries import requires
from support.python_process import run_python

pytestmark = pytest.mark.slow

ROUNDS = 300
TABLE = table_of(dlx.Tensor)


class Old(OldProducer):
    """A type of its own, so that its signature is met here for the first time."""


PRODUCERS: dict[str, Callable[[], Producer]] = {
    "table": lambda: table_class()(),
    "protocol": Producer,
    "old protocol": Old,
}


@pytest.mark.parametrize("make", PRODUCERS.values(), ids=PRODUCERS)
def test_each_import_of_the_same_object_is_deleted_once(
    make: Callable[[], Producer],
) -> None:
    """R8, R16, R145: many threads import one producer."""
    producer = make()

    def work(index: int) -> set[tuple[int, ...]]:
        return {dlx.from_dlpack(producer).shape for _ in range(ROUNDS)}

    assert together(work) == [{(2, 3)}] * THREADS
    assert [export.deleted for export in producer.exports] == [1] * THREADS * ROUNDS


def sources() -> list[Any]:
    """Objects of different libraries and protocols over the numbers 0, 1 and 2."""
    array = np.arange(3.0)
    own = dlx.from_dlpack(array)
    double: dict[str, Any] = {"memory": array, "shape": (3,), "dtype": (2, 64, 1)}
    return [
        array,
        tvm_ffi.from_dlpack(array),
        own,
        Producer(**double),
        Old(**double),
        table_class()(**double),
    ]


def test_different_types_are_imported_side_by_side() -> None:
    """R145: each thread gets the elements of its own source."""
    found = sources()

    def work(index: int) -> set[tuple[float, ...]]:
        return {
            tuple(np.asarray(dlx.from_dlpack(found[(index + turn) % len(found)])))
            for turn in range(ROUNDS)
        }

    assert together(work) == [{(0, 1, 2)}] * THREADS


def test_torch_tensors_are_imported_side_by_side() -> None:
    """R145, and the guards of R125."""
    torch = requires("torch")
    plain, recording = torch.arange(3.0), torch.ones(3, requires_grad=True)

    def work(index: int) -> int:
        refused = 0
        for _ in range(ROUNDS):
            assert dlx.from_dlpack(plain).shape == (3,)
            try:
                dlx.from_dlpack(recording)
            except BufferError:
                refused += 1
        return refused

    assert together(work) == [ROUNDS] * THREADS


FRESH: dict[str, Callable[[], type[Producer]]] = {
    "table": table_class,
    "protocol": lambda: type("Fresh", (Producer,), {}),
    "old protocol": lambda: type("Fresh", (OldProducer,), {}),
}


@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_a_type_may_be_met_by_all_threads_at_once(
    make: Callable[[], type[Producer]],
) -> None:
    """R117, R145: what is known of a type is found once, whoever comes first."""
    for _ in range(20):
        producer = make()()
        imported = together(partial(lambda x, _: dlx.from_dlpack(x), producer))
        assert [tensor.shape for tensor in imported] == [(2, 3)] * THREADS
        del imported
        assert producer.deleted == len(producer.exports) == THREADS


def test_a_capsule_is_consumed_by_one_thread() -> None:
    """R10, R11: all others are refused."""
    for _ in range(50):
        producer = Producer()
        capsule = producer.capsule()

        def work(index: int, capsule: Any = capsule) -> bool:
            try:
                dlx.from_dlpack(capsule)
            except BufferError:
                return False
            return True

        assert sum(together(work)) == 1
        del capsule
        assert producer.deleted == 1


EXPORTS: dict[str, Callable[[dlx.Tensor], Any]] = {
    "a capsule": lambda tensor: tensor.__dlpack__(max_version=(1, 3)),
    "a legacy capsule": lambda tensor: tensor.__dlpack__(),
    "NumPy": np.from_dlpack,
    "tvm_ffi": tvm_ffi.from_dlpack,
    "a buffer": memoryview,
    "an import": lambda tensor: dlx.from_dlpack(tensor.__dlpack__()),
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_exports_of_one_tensor_let_go_of_it_once(
    export: Callable[[dlx.Tensor], Any],
) -> None:
    """R8, R16, R145: many threads export one tensor."""
    producer = Producer()
    tensors = [dlx.from_dlpack(producer)]

    def work(index: int) -> int:
        return len([export(tensors[0]) for _ in range(ROUNDS)])

    assert together(work) == [ROUNDS] * THREADS
    assert producer.deleted == 0
    tensors.clear()
    assert producer.deleted == 1


def test_copies_made_at_once_are_all_right() -> None:
    """R59: each is large enough to let the GIL go."""
    array = np.arange(300_000).reshape(500, 600).T
    tensor = dlx.from_dlpack(array)

    def work(index: int) -> bool:
        copies = [tensor.to(copy=True) for _ in range(5)]
        return all(np.array_equal(np.asarray(copied), array) for copied in copies)

    assert together(work) == [True] * THREADS


# Without the GIL: ctypes lets it go around these calls.


def test_allocations_without_the_gil_are_apart() -> None:
    """R136, R145: the allocator needs no Python."""
    shape = (c_int64 * 2)(5, 7)
    prototype = DLTensor(device=(1, 0), ndim=2, dtype=(2, 32, 1), shape=shape)

    def work(index: int) -> list[DLManagedTensorVersioned]:
        made = []
        for _ in range(ROUNDS):
            out = c_void_p()
            TABLE.managed_tensor_allocator(addressof(prototype), byref(out), None, None)
            made.append(DLManagedTensorVersioned.from_address(out.value or 0))
        return made

    made = [one for part in together(work) for one in part]
    starts = sorted(managed.dl_tensor.data for managed in made)
    assert min(np.diff(starts)) >= 5 * 7 * 4

    def free(index: int) -> None:
        for managed in made[index::THREADS]:
            delete(managed)

    together(free)


class Owner:
    """What can be weakly referenced."""


WAYS: dict[str, Callable[[dlx.Tensor], Any]] = {
    "table": partial(from_table, TABLE),
    "capsule": lambda tensor: take(tensor.__dlpack__(max_version=(1, 3))),
    "legacy capsule": lambda tensor: take(tensor.__dlpack__()),
}


@pytest.mark.parametrize("export", WAYS.values(), ids=WAYS)
def test_deleters_run_on_threads_that_python_does_not_know(
    export: Callable[[dlx.Tensor], Any],
) -> None:
    """R13: while the main thread runs Python, and with a Python object behind them."""
    let_go: list[object] = []
    for _ in range(50):
        joins = []
        for _ in range(40):
            owner = Owner()
            weakref.finalize(owner, let_go.append, None)
            tensor = dlx.from_pointer(8, (2, 3), "int8", owner=owner)
            managed = export(tensor)
            del owner, tensor
            joins.append(raw_thread(managed.deleter, addressof(managed)))
        math.factorial(500)
        for join in joins:
            join()
    assert len(let_go) == 50 * 40


# A lock held while Python runs would never be had by the thread that has the GIL.

MEETINGS = {
    "by another thread": """
        def meet():
            sum(number for number in range(20_000))
        def run():
            barrier.wait()
            dlx.from_dlpack(producer)
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
    "by the metaclass itself": """
        def meet():
            dlx.from_dlpack(producer)
        dlx.from_dlpack(producer)
        """,
}


@pytest.mark.parametrize("meeting", MEETINGS.values(), ids=MEETINGS)
def test_a_type_may_be_met_again_while_its_metaclass_answers(meeting: str) -> None:
    """R97: never a hang. `type(x)` may run any Python when it is asked something."""
    code = """
        import faulthandler, sys, threading
        faulthandler.dump_traceback_later(300, exit=True)
        sys.setswitchinterval(1e-6)
        import dlx
        from support.fake_producers import Producer

        barrier = threading.Barrier(4)
        asked = threading.local()

        class Asked(type):
            def __getattribute__(cls, name):
                if not hasattr(asked, "once") and "meet" in globals():
                    asked.once = True
                    meet()
                return super().__getattribute__(name)

        class Slow(Producer, metaclass=Asked):
            pass

        producer = Slow()
        """
    status, _, errors = run_python(dedent(code) + dedent(meeting))
    assert (status, errors) == (0, "")
