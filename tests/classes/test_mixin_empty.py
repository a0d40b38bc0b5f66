"""`__dlx_empty__`: memory that a class allocates for C code."""

from __future__ import annotations

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import (
    UNTOUCHED,
    Allocation,
)
from support.dlx_producers import ERRORS, Stored, with_hook
from support.fake_producers import Producer
from support.optional_libraries import requires

CUDA = (2, 0)


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
    if kind == "torch":
        requires("torch")  # a skip inside the hook would be an error of the table
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
    """R138, R100: the deleter of what `__dlx_empty__` returned."""
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
    # Of a large array the elements would be most of it.
    assert len(text) < 120


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
    "device type 5": {"shape": (2,), "device": (5, 0)},
    "33 bits": {"shape": (2,), "dtype": (2, 33, 1)},
    "no lanes": {"shape": (2,), "dtype": (2, 32, 0)},
    "65 dimensions": {"shape": (1,) * 65},
    "NULL shape": {"shape": None, "ndim": 2},
}


@pytest.mark.parametrize("arguments", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_nobody_could_allocate_is_not_asked_for(arguments: dict[str, Any]) -> None:
    """R31, R88, R135: an unknown dtype, a negative extent."""
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


def test_an_allocation_that_fails_reports_one_line() -> None:
    """R135: torch appends a C++ backtrace to what it raises through its table."""
    torch = requires("torch")

    def empty(*asked: Any) -> Any:
        [(_, _, text)] = Allocation(torch.Tensor, (2,), device=(7, 0)).errors
        assert b"\nException raised from " in text
        raise RuntimeError(text.decode())

    failed = Allocation(with_hook("__dlx_empty__", empty), (2, 3))
    [(_, _, text)] = failed.errors
    assert text == b"Unsupported device_type: 7"
