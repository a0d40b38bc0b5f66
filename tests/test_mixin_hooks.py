"""`__dlx_import__` and `__dlx_empty__`: the defaults, own ones, wrong ones."""

from __future__ import annotations

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_void_p
from functools import cache
from typing import Any

import dlx
import numpy as np
import pytest
import tvm_ffi
from dlpack_abi import (
    UNTOUCHED,
    Allocation,
    DLManagedTensorVersioned,
    delete,
    from_table,
    table_of,
    take_reference,
)
from fake_producers import Producer
from heavy import requires
from libc import heap_in_use, needs_heap_in_use
from producers import ByMethod, Stored

CUDA, CUDA_1, ROCM, CPU = (2, 0), (2, 1), (10, 0), (1, 0)
HANDLE = 0x7F12_3456_7890


class Failure(Exception):
    """An exception that dlx cannot know."""


@cache
def hooked(hook: str) -> Any:
    """Make a class whose hook records what it is asked, and gives `answer`."""

    def give(cls: Any, *arguments: Any) -> Any:
        cls.asked.append(arguments)
        if isinstance(cls.answer, BaseException):
            raise cls.answer
        return cls.answer(*arguments) if callable(cls.answer) else cls.answer

    return type("Hooked", (Stored,), {hook: classmethod(give)})


def with_hook(hook: str, answer: Any) -> Any:
    """Give a class whose hook gives `answer`, raised if it is an exception."""
    kind = hooked(hook)
    kind.answer = staticmethod(answer) if callable(answer) else answer
    kind.asked = []
    return kind


def to_object(owner: Any, address: int) -> Any:
    """Call `managed_tensor_to_py_object_no_sync`."""
    out, table = c_void_p(UNTOUCHED), table_of(owner)
    try:
        table.managed_tensor_to_py_object_no_sync(address, byref(out))
    except BaseException:
        assert out.value == UNTOUCHED
        raise
    return take_reference(out)


# __dlx_import__


def test_an_import_calls_the_class_with_a_tensor() -> None:
    """R130."""
    made = to_object(Stored, Producer().export())
    assert (type(made), type(made.data)) == (Stored, dlx.Tensor)
    assert type(Stored.from_dlpack(np.zeros(3)).data) is dlx.Tensor


def test_the_class_may_import_in_its_own_way() -> None:
    """R130: also where C code hands the tensor back."""

    class Renamed(Stored):
        def __init__(self, data: Any, label: str) -> None:
            super().__init__(data)
            self.label = label

        @classmethod
        def __dlx_import__(cls, tensor: dlx.Tensor) -> Renamed:
            return cls(tensor, "imported")

    echo: Any = tvm_ffi.get_global_func("testing.echo")
    source = np.zeros(3)
    assert to_object(Renamed, Producer().export()).label == "imported"
    assert Renamed.from_dlpack(source).label == "imported"
    assert echo(Renamed(source, "mine")).label == "imported"


def test_a_subclass_inherits_the_import_of_its_base() -> None:
    """R130: called for the subclass."""
    base = with_hook("__dlx_import__", lambda tensor: child(tensor))
    child: Any = type("Child", (base,), {})
    assert type(to_object(child, Producer().export())) is child


def test_from_dlpack_passes_its_arguments_on() -> None:
    """R56, R59, R76, as `dlx.from_dlpack` reads them."""
    source = np.zeros(3)
    copied = Stored.from_dlpack(source, copy=True, device="cpu")
    assert copied.data.is_copied
    cuda = Producer(device=CUDA)
    assert Stored.from_dlpack(cuda, stream=2).data.stream == 2
    with pytest.raises(TypeError):
        Stored.from_dlpack(source, None)  # type: ignore[call-arg]


WRONG: list[Any] = [None, 5, "made", Stored, lambda tensor: tensor, ByMethod(None)]


@pytest.mark.parametrize("answer", WRONG, ids=str)
def test_an_import_that_makes_something_else_is_a_type_error(answer: Any) -> None:
    """R123, R131: naming class and method; the tensor is still the caller's."""
    kind = with_hook("__dlx_import__", answer)
    producer = Producer()
    address = producer.export()
    with pytest.raises(TypeError, match=r"Hooked\.__dlx_import__ returned"):
        to_object(kind, address)
    assert producer.deleted == 0
    delete(DLManagedTensorVersioned.from_address(address))
    with pytest.raises(TypeError, match=r"Hooked\.__dlx_import__ returned"):
        kind.from_dlpack(producer)


ERRORS = [Failure("own", 1), KeyError("key"), MemoryError(), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_exception_of_an_import_passes_unchanged(error: BaseException) -> None:
    """R123, R60."""
    kind = with_hook("__dlx_import__", error)
    producer = Producer()
    address = producer.export()
    with pytest.raises(type(error)) as caught:
        to_object(kind, address)
    assert caught.value is error
    assert caught.traceback[-1].name == "give"
    del caught
    assert producer.deleted == 0
    delete(DLManagedTensorVersioned.from_address(address))
    error.__traceback__ = None  # its frames hold the tensor, as does the record
    kind.asked.clear()
    assert producer.deleted == 1


def test_a_tensor_that_a_failed_import_left_behind_stays_readable() -> None:
    """R131, R15: the caller deletes its tensor while the user's code still has one."""
    left: list[dlx.Tensor] = []

    class Leaving(Stored):
        @classmethod
        def __dlx_import__(cls, tensor: dlx.Tensor) -> Leaving:
            left.append(tensor)
            raise Failure

    producer = Producer()
    address = producer.export()
    with pytest.raises(Failure):
        to_object(Leaving, address)
    delete(DLManagedTensorVersioned.from_address(address))
    assert producer.deleted == 0
    assert left[0].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    left.clear()
    assert producer.deleted == 1


@needs_heap_in_use
@pytest.mark.parametrize("answer", [None, Failure()], ids=repr)
def test_imports_that_fail_leak_nothing(answer: Any) -> None:
    """R21, R131."""
    kind = with_hook("__dlx_import__", answer)
    source = dlx.from_dlpack(np.zeros((2, 3)))

    def used_after(rounds: int) -> int:
        for _ in range(rounds):
            managed = from_table(table_of(dlx.Tensor), source)
            with pytest.raises((TypeError, Failure)):
                to_object(kind, ctypes.addressof(managed))
            delete(managed)
            kind.asked.clear()
            if isinstance(answer, Failure):
                answer.__traceback__ = None
        return heap_in_use()

    before = used_after(500)
    assert used_after(5000) - before < 5000 * 16


# __dlx_empty__


def zeros(shape: tuple[int, ...], dtype: dlx.DType, device: dlx.Device) -> Any:
    """Allocate by NumPy."""
    return np.zeros(shape, str(dtype))


@pytest.mark.parametrize("shape", [(2, 3), (), (4, 0)], ids=str)
def test_a_class_may_allocate_in_its_own_way(shape: tuple[int, ...]) -> None:
    """R134, R138: asked for shape, dtype and device; the memory is what it gave."""
    given: list[Any] = []

    def empty(*asked: Any) -> Any:
        given.append(zeros(*asked))
        return given[0]

    kind = with_hook("__dlx_empty__", empty)
    made = Allocation(kind, shape)
    assert (made.code, made.errors) == (0, [])
    assert kind.asked == [(shape, "float32", "cpu")]
    assert [type(part) for part in kind.asked[0]] == [tuple, dlx.DType, dlx.Device]
    tensor = made.managed.dl_tensor
    assert tensor.shape[: tensor.ndim] == list(shape)
    if math.prod(shape):
        assert tensor.data == given[0].ctypes.data
    assert made.managed.flags == 0
    made.delete()


@pytest.mark.parametrize("kind", ["torch", "mixin", "dlx.Tensor", "buffer"])
def test_new_memory_may_come_from_any_library(kind: str) -> None:
    """R138: whatever `dlx.from_dlpack` takes."""
    given: dict[str, Any] = {
        "torch": lambda *asked: requires("torch").empty(asked[0]),
        "mixin": lambda *asked: Stored(zeros(*asked)),
        "dlx.Tensor": lambda *asked: dlx.from_dlpack(zeros(*asked)),
        "buffer": lambda *asked: zeros(*asked).data,
    }
    made = Allocation(with_hook("__dlx_empty__", given[kind]), (2, 3))
    assert (made.code, made.errors) == (0, [])
    ctypes.memset(made.managed.dl_tensor.data, 0xFF, 24)
    made.delete()


def test_new_memory_lives_until_its_deleter_is_called() -> None:
    """R138, R100."""
    producer = Producer()
    made = Allocation(with_hook("__dlx_empty__", lambda *asked: producer), (2, 3))
    assert producer.deleted == 0
    made.delete()
    assert producer.deleted == 1


def test_an_own_allocation_may_fall_back_on_dlx() -> None:
    """R96: `super()` gives memory of dlx's own."""

    class Counting(Stored):
        count = 0

        @classmethod
        def __dlx_empty__(cls, *asked: Any) -> Any:
            cls.count += 1
            return super().__dlx_empty__(*asked)

    made = Allocation(Counting, (2, 3))
    assert (made.code, Counting.count) == (0, 1)
    assert (made.managed.dl_tensor.data or 0) % 256 == 0
    made.delete()


NOT_ASKED: dict[str, Any] = {
    "nothing": lambda *asked: None,
    "a list": lambda *asked: [1.0],
    "another shape": lambda *asked: zeros((3, 2), *asked[1:]),
    "fewer dimensions": lambda *asked: zeros((6,), *asked[1:]),
    "another dtype": lambda *asked: np.zeros(asked[0]),
    "another device": lambda *asked: Producer(device=CUDA),
    "read-only": lambda *asked: np.broadcast_to(np.float32(0), asked[0]),
}


@pytest.mark.parametrize("answer", NOT_ASKED.values(), ids=NOT_ASKED)
def test_an_allocation_of_something_else_is_a_type_error(answer: Any) -> None:
    """R135, R138: naming class and method, and only through SetError."""
    failed = Allocation(with_hook("__dlx_empty__", answer), (2, 3))
    assert (failed.code, failed.address) == (-1, UNTOUCHED)
    [(context, reported, text)] = failed.errors
    assert (context, reported) == (0xC0, b"TypeError")
    assert b"Hooked.__dlx_empty__ returned" in text


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_exception_of_an_allocation_goes_to_set_error(error: BaseException) -> None:
    """R135, R136: none is left behind for the caller, who has no Python."""
    failed = Allocation(with_hook("__dlx_empty__", error), (2, 3))
    [(_, reported, text)] = failed.errors
    assert (failed.code, failed.address) == (-1, UNTOUCHED)
    assert (reported.decode(), text.decode()) == (type(error).__name__, str(error))
    assert Allocation(with_hook("__dlx_empty__", error), (2,), reports=False).code == -1


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "negative extent": {"shape": (2, -1)},
    "device type 99": {"shape": (2,), "device": (99, 0)},
    "code 99": {"shape": (2,), "dtype": (99, 8, 1)},
    "no lanes": {"shape": (2,), "dtype": (2, 32, 0)},
    "65 dimensions": {"shape": (1,) * 65},
    "NULL shape": {"shape": None, "ndim": 2},
}


@pytest.mark.parametrize("arguments", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_nobody_could_allocate_is_not_asked_for(arguments: dict[str, Any]) -> None:
    """R31, R88, R135."""
    kind = with_hook("__dlx_empty__", zeros)
    failed = Allocation(kind, **arguments)
    assert [reported for _, reported, _ in failed.errors] == [b"BufferError"]
    assert (failed.code, failed.address, kind.asked) == (-1, UNTOUCHED, [])


def test_another_device_than_the_first_is_not_served_by_it() -> None:
    """R138, R66: a tensor asked for on cpu:7 is not given on cpu:0."""
    made = Allocation(with_hook("__dlx_empty__", zeros), (2,), device=(1, 7))
    assert made.code == -1


def test_threads_without_the_gil_allocate_in_python() -> None:
    """R136, R145: ctypes lets go of the GIL for each call."""
    kind = with_hook("__dlx_empty__", zeros)

    def work(number: int) -> bool:
        made = Allocation(kind, (number, 3))
        right: bool = made.managed.dl_tensor.shape[:2] == [number, 3]
        made.delete()
        return right

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 201)))
